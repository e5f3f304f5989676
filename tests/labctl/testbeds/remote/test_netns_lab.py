"""A lab of namespaces with a real sshd each: provision, deploy, run, collect, and everything that can go wrong."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers import wait_for
from tests.support.labs import Command, inhabitants, require_namespaces

pytestmark = pytest.mark.slow

HOSTS = ("broker-1", "broker-2", "broker-3", "client-1", "client-2", "client-3", "client-4")


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """labctl with a lab of three brokers and four clients."""
    require_namespaces()
    labctl = Command(tmp_path_factory.mktemp("netns"), "10.79.0.0/24")
    try:
        labctl(
            "provision", "--testbed", str(labctl.testbed), "--lab", "l", "--brokers", "3", "--clients", "4"
        )
        yield labctl
    finally:
        removed = json.loads(labctl("destroy", "--lab", "l", "--yes", "--json"))
        assert removed["left"] == []


@pytest.fixture
def whole(command: Command) -> Command:
    """The lab with all its hosts, whatever the test before has done to them."""
    states = json.loads(command("status", "--lab", "l", "--json", code=0 if _is_whole(command) else 4))
    if any(host["state"] != "ready" for host in states["hosts"]):
        command("provision", "--lab", "l", "--brokers", "3", "--clients", "4")
    for left in command.on_hosts("*/*/runs"):
        shutil.rmtree(left)
    return command


def _is_whole(command: Command) -> bool:
    return all(inhabitants(host["provider_id"]) for host in command.lab()["hosts"])


def started(command: Command, host: str, node: str) -> None:
    """Until a process has begun to write its log."""
    home = command.lab_file().parent / "hosts" / host / "home"
    logs = f".labctl/*/*/runs/*/nodes/{node}.jsonl"
    wait_for(f"{node} on {host}", lambda: any(log.stat().st_size for log in home.glob(logs)), 60)


def test_an_experiment_on_a_lab_leaves_what_one_on_this_machine_does_and_what_the_hosts_are(
    whole: Command,
) -> None:
    said = whole(*whole.run())
    assert "broker-1: deployed: code, packages" in said
    [repetition] = whole.result.glob("cells/*/01")
    nodes = {"b1", "b2", "b3", "E", "D", "A1", "A2"}
    assert {path.stem for path in (repetition / "history").iterdir()} == nodes
    assert {path.stem for path in (repetition / "nodes").glob("*.jsonl")} == nodes
    assert {path.stem for path in (repetition / "tables").iterdir()} == {"b1", "b2", "b3"}
    cell = json.loads((repetition / "cell.json").read_text())
    assert set(cell["probe_ms"]) == {"b1>b2", "b2>b1", "b2>b3", "b3>b2"}
    assert set(cell["steal"]) == set(HOSTS)
    lines = (repetition / "transactions.jsonl").read_text().splitlines()
    assert len(lines) == 55
    assert all(json.loads(line)["correct"] for line in lines)
    assert not (repetition / "not-collected.txt").exists()
    assert "valid" in whole("check", str(whole.result))

    facts = json.loads((whole.result / "hosts.json").read_text())
    assert set(facts["hosts"]) == set(HOSTS)
    assert all(fact["id"] and fact["kernel"] and fact["model"] for fact in facts["hosts"].values())
    assert facts["round_trip_ms"]["broker-1"]["client-1"] > 0
    run = json.loads((whole.result / "run.json").read_text())
    assert run["testbed"]["kind"] == "netns"
    assert run["testbed"]["lab"] == "l"

    # Nothing runs any more, and nothing of the repetition is left on the hosts.
    assert all(whole.ours(host) == [] for host in HOSTS)
    assert whole.on_hosts("*/*/runs/*") == []


def test_what_is_there_is_not_brought_again_and_its_hash_names_it(whole: Command) -> None:
    first = whole(*whole.run("--dry-run"))
    assert "python3 -m broker --config" in first
    whole.deploy()
    homes = whole.lab_file().parent / "hosts"
    before = {path.name for path in homes.glob("client-1/home/.labctl/*/*/bundles/*")}
    assert len(before) == 2
    assert all(len(name) == 64 and name in first for name in before)
    assert "client-1 deployed: nothing new" in whole.deploy()
    assert {path.name for path in homes.glob("client-1/home/.labctl/*/*/bundles/*")} == before


def test_somebody_else_at_the_address_of_a_host_stops_everything(whole: Command) -> None:
    one, other = whole.host("client-1")["address"], whole.host("client-2")["address"]
    whole.edit_host("client-1", address=other)
    try:
        said = whole(*whole.run(), code=4)
    finally:
        whole.edit_host("client-1", address=one)
    assert f"the host key of client-1 ({other}:22) is SHA256:" in said
    assert "somebody else answers" in said
    assert "Traceback" not in said
    assert all(whole.ours(host) == [] for host in HOSTS)


def test_a_plain_ssh_is_as_strict(whole: Command) -> None:
    assert whole("ssh", "broker-2", "--lab", "l", "--", "hostname").splitlines()[0] == "l-broker-2"
    key = whole.host("broker-2")["host_key"]
    known = whole.lab_file().with_name("known_hosts")
    text = known.read_text()
    known.write_text(text.replace(key, whole.host("broker-1")["host_key"]))
    try:
        assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in whole(
            "ssh", "broker-2", "--lab", "l", "--", "hostname", code=255
        )
    finally:
        known.write_text(text)


def test_a_host_that_dies_in_the_middle_is_named_and_the_logs_of_the_others_are_kept(whole: Command) -> None:
    with whole.start(*whole.run("--repeat", "3")) as process:
        for host, node in (("client-1", "D"), ("client-2", "A1"), ("client-3", "A2"), ("client-4", "E")):
            started(whole, host, node)
        os.kill(whole.first_process("broker-2").pid, signal.SIGKILL)
        out, err = process.communicate(timeout=100)
    assert process.returncode == 4, out + err
    assert "host broker-2 is lost" in err
    assert "Traceback" not in err
    [failed] = whole.result.glob("failed/*/*")
    kept = {path.stem for path in (failed / "nodes").glob("*.jsonl")}
    assert {"b1", "b3", "D", "A1", "A2", "E"} <= kept
    assert "broker-2" in (failed / "not-collected.txt").read_text()
    assert all(whole.ours(host) == [] for host in HOSTS if host != "broker-2")


def test_a_host_that_falls_silent_is_lost_after_a_few_signs_of_life(whole: Command) -> None:
    outside = f"lv{whole.host('client-3')['provider_id'].removeprefix('labctl-')[:12]}"
    with whole.timeouts(keepalive_s=2.0, connect_s=3.0), whole.start(*whole.run("--repeat", "3")) as process:
        started(whole, "client-4", "E")
        subprocess.run(["ip", "link", "set", outside, "down"], check=True)
        try:
            _, err = process.communicate(timeout=100)
        finally:
            subprocess.run(["ip", "link", "set", outside, "up"], check=True)
    assert process.returncode == 4, err
    assert "host client-3 is lost" in err
    assert "Traceback" not in err
    # Its agent hears nothing either, and stops what it has started by itself.
    wait_for("the end of the agent of a host without a line", lambda: whole.ours("client-3") == [], 60)


def test_a_host_without_room_is_told_before_anything_is_brought(whole: Command) -> None:
    pid = str(whole.first_process("client-2").pid)
    folder = f"{pwd.getpwuid(0).pw_dir}/.labctl/{whole.lab()['id']}/client-2"
    inside = ["nsenter", "--target", pid, "--mount"]
    subprocess.run([*inside, "mkdir", "-p", folder], check=True)
    subprocess.run([*inside, "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=True)
    try:
        said = whole(*whole.run(), code=4)
    finally:
        subprocess.run([*inside, "umount", folder], check=True)
    assert "the disk of client-2 is full" in said
    assert "1.0 MB are free" in said


def test_over_a_slow_link_a_transfer_that_was_cut_off_goes_on_where_it_ended(whole: Command) -> None:
    host = whole.host("client-1")
    outside = f"lv{host['provider_id'].removeprefix('labctl-')[:12]}"
    home = whole.lab_file().parent / "hosts" / "client-1" / "home"
    subprocess.run(["rm", "-rf", str(home / ".labctl")], check=True)
    slow = [
        "tc",
        "qdisc",
        "add",
        "dev",
        outside,
        "root",
        "tbf",
        "rate",
        "6mbit",
        "burst",
        "64k",
        "latency",
        "1s",
    ]
    subprocess.run(slow, check=True)
    try:
        with whole.timeouts(transfer_s=3.0):
            said = whole.deploy(code=4)
        assert "client-1, bring code and packages" in said
        assert "not done within 3 s" in said
        [part] = home.glob(".labctl/*/*/bundles/*.part")
        assert 0 < part.stat().st_size < 4_000_000
        assert "client-1 deployed: packages" in whole.deploy()
    finally:
        subprocess.run(["tc", "qdisc", "del", "dev", outside, "root"], check=True)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_when_labctl_is_ended_nothing_of_it_goes_on_and_strangers_are_left_alone(
    whole: Command, number: signal.Signals
) -> None:
    stranger = subprocess.Popen(
        ["ip", "netns", "exec", whole.host("broker-1")["provider_id"], "sleep", "600"],
    )
    try:
        with whole.start(*whole.run()) as process:
            started(whole, "client-4", "E")
            process.send_signal(number)
            process.communicate(timeout=60)
        assert process.returncode == (130 if number == signal.SIGTERM else -number)
        wait_for("agents to end what they started", lambda: all(whole.ours(h) == [] for h in HOSTS), 60)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait(10)


def test_what_has_failed_can_be_kept_and_looked_at(whole: Command) -> None:
    with whole.start(*whole.run("--keep-on-failure")) as process:
        started(whole, "client-1", "D")
        [client] = [
            each
            for each in inhabitants(whole.host("client-1")["provider_id"])
            if "--scenario" in " ".join(each.arguments)
        ]
        os.kill(client.pid, signal.SIGKILL)
        _, err = process.communicate(timeout=100)
    assert process.returncode == 4
    assert "client D ended with -9" in err
    assert any("-m broker" in each for each in whole.ours("broker-1"))
    assert "b1.jsonl" in whole("logs", "broker-1", "--lab", "l")
    assert '"event":"ready"' in whole("logs", "broker-1", "b1", "--lab", "l").replace(" ", "")
    again = whole(*whole.run())
    assert "b1 of an earlier run" in again
    assert all(whole.ours(host) == [] for host in HOSTS)


def test_machines_that_exist_already_are_a_lab_too(whole: Command, tmp_path: Path) -> None:
    """The hosts of the one lab are the machines of another."""
    entries = "".join(
        f"  - {{address: {host['address']}, role: {host['role']}, host_key: {host['host_key']}}}\n"
        for host in whole.lab()["hosts"]
    )
    testbed = tmp_path / "hosts.yaml"
    identity = whole.lab_file().with_name("id_ed25519")
    testbed.write_text(f"provider: hosts\nuser: root\nidentity: {identity}\nhosts:\n{entries}")
    size = ("--brokers", "3", "--clients", "4")
    assert "not ok" not in whole("doctor", "--testbed", str(testbed), *size)
    whole("provision", "--testbed", str(testbed), "--lab", "borrowed", *size)
    whole(*whole.run(lab="borrowed"))
    assert json.loads((whole.result / "run.json").read_text())["testbed"]["kind"] == "hosts"
    removed = json.loads(whole("destroy", "--lab", "borrowed", "--yes", "--json"))
    assert len(removed["deleted"]) == 7
    assert removed["left"] == []
    assert {path.name for path in whole.on_hosts("*")} <= {whole.lab()["id"]}
    assert "ready" in whole("status", "--lab", "l")
