"""A lab of machines that boot: made, looked at, used for an experiment and removed, over SSH, as a user does it.

The tests are one story and depend on each other in this order.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from tests.openstack.configs import ADMIN_PASSWORD
from tests.openstack.control_plane import ControlPlane
from tests.openstack.labs import Done, User, inventory
from tests.vm import libvirt
from tests.vm.stages import Stages, machines, services_mb

HOSTS = ("broker-1", "client-1")
PROVISION_S = 1500
RUN_S = 1200
NODES = {"b1", "b2", "b3", "E", "D", "A1", "A2"}

pytestmark = pytest.mark.timeout(PROVISION_S + 300)


def succeeds(done: Done) -> Done:
    assert done.code == 0, done.stdout + done.stderr
    return done


def on(user: User, host: str, command: str) -> str:
    """What a command prints that is run there, through `labctl ssh`."""
    return succeeds(user.labctl("ssh", host, "--", command, limit_s=300)).stdout


@pytest.fixture(scope="module")
def lab(user: User, bed: Path, stages: Stages) -> Iterator[User]:
    """The user, when his lab is up; and whatever happens, it is removed."""
    with stages.stage("provision: two machines, until sshd answers"):
        done = user.labctl(
            "provision", "--testbed", bed, "--experiment", "base", "--json", limit_s=PROVISION_S
        )
    try:
        succeeds(done)
        yield user
    finally:
        user.labctl("destroy", "--yes", "--json")


def test_the_doctor_finds_the_cloud_fit(user: User, bed: Path) -> None:
    found = succeeds(user.labctl("doctor", "--testbed", bed)).stdout
    assert "image debian-12" in found
    assert "instances 2 of" in found


def test_the_plan_is_two_machines_for_seven_processes(user: User, bed: Path) -> None:
    plan = succeeds(
        user.labctl("provision", "--testbed", bed, "--experiment", "base", "--dry-run", "--json")
    ).json
    kinds = [each["kind"] for each in plan["create"]]
    assert kinds == ["security-group", "server-group", "server", "server"]
    assert "3 brokers and 4 clients share 2 hosts" in plan["notes"]


def test_both_machines_run_and_the_lab_knows_that_they_are_shared(lab: User) -> None:
    status = succeeds(lab.labctl("status", "--json")).json
    assert [(host["name"], host["state"]) for host in status["hosts"]] == [(name, "ready") for name in HOSTS]
    assert status["may_share"] is True
    assert len(machines()) == 2


def test_an_experiment_on_both_machines_is_valid(lab: User, stages: Stages) -> None:
    results = lab.home / "results"
    command = ["run", "experiment", "base", "--profile", "quick", "--only", "approach=s-tx"]
    command += ["--transactions", "20", "--lab", "default", "--results", str(results), "--json"]
    with stages.stage("experiment: end of the start, deployment, 2 cells"):
        report = succeeds(lab.labctl(*command, limit_s=RUN_S)).json
    assert (report["done"], report["total"]) == (2, 2)
    assert report["failed"] == []
    latest = results / "base" / "latest"
    for repetition in latest.glob("cells/*/01"):
        assert {path.stem for path in (repetition / "history").iterdir()} == NODES
        records = [json.loads(line) for line in (repetition / "transactions.jsonl").read_text().splitlines()]
        assert len(records) == 25
        assert all(record["correct"] for record in records)
        took_s = sorted(each["ack_s"] - each["start_s"] for each in records if not each["warm_up"])
        stages.note(f"  median latency, {repetition.parent.name}", f"{1e3 * took_s[10]:.0f} ms")
    # While cloud-init was still at work, nothing was measured.
    started = min(json.loads(path.read_text())["started"] for path in latest.glob("cells/*/01/cell.json"))
    for host in HOSTS:
        settled_at_s = float(on(lab, host, "stat --format=%Y /run/cloud-init/result.json"))
        assert settled_at_s <= datetime.fromisoformat(started).timestamp()
    run = json.loads((latest / "run.json").read_text())
    assert run["testbed"]["kind"] == "openstack"
    assert run["testbed"]["packed"] is True
    facts = json.loads((latest / "hosts.json").read_text())
    assert set(facts["hosts"]) == set(HOSTS)
    assert "QEMU" in facts["hosts"]["broker-1"]["model"]
    stages.note("  round trip between machines", f"{facts['round_trip_ms']['broker-1']['client-1']:.1f} ms")
    assert "invalid" not in succeeds(lab.labctl("check", latest)).stdout


def test_cloud_init_ended_well_with_our_host_key_and_no_other(lab: User) -> None:
    for host in HOSTS:
        assert "status: done" in on(lab, host, "cloud-init status")
    for known in lab.state()["hosts"]:
        keys = on(lab, known["name"], "sudo cat /etc/ssh/ssh_host_*_key.pub").splitlines()
        assert [" ".join(key.split()[:2]) for key in keys] == [known["host_key"]]
        assert on(lab, known["name"], "hostname").strip() == f"default-{known['name']}"


def test_another_machine_at_the_address_is_refused(lab: User) -> None:
    known = lab.home / "labctl" / "labs" / "default" / "known_hosts"
    usual = known.read_text()
    first, second = (host["host_key"] for host in lab.state()["hosts"])
    known.write_text(usual.replace(first, "?").replace(second, first).replace("?", second))
    try:
        done = lab.labctl("ssh", HOSTS[0], "--", "true")
    finally:
        known.write_text(usual)
    assert done.code == 255
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in done.stderr


def test_a_timer_will_shut_each_machine_down_when_the_lifetime_ends(lab: User) -> None:
    expires_at_s = lab.state()["expires_at_s"]
    for host in HOSTS:
        [timer] = json.loads(on(lab, host, "systemctl list-timers labctl-lifetime.timer --output=json"))
        assert abs(timer["next"] / 1e6 - expires_at_s) <= 1
        assert timer["activates"] == "labctl-lifetime.service"


def test_no_machine_holds_a_credential_of_the_cloud_or_of_the_lab(lab: User, cloud: ControlPlane) -> None:
    private = lab.home / "labctl" / "labs" / "default" / "id_ed25519"
    secrets = ["member-password", ADMIN_PASSWORD, cloud.places.url("identity"), _body(private)]
    for host in HOSTS:
        on(lab, host, "sudo mount -o ro /dev/disk/by-label/config-2 /mnt")
        assert _found(lab, host, secrets) == set()
        # The same search finds what there is, on the disk and on the drive that the cloud gave it.
        known = _found(lab, host, ["lifetime of this machine"])
        assert {"/etc/systemd/system/labctl-lifetime.timer", "/mnt/openstack/latest/user_data"} <= known


def _found(user: User, host: str, secrets: list[str]) -> set[str]:
    """Files with one of them in it. A pattern that does not match itself: the command is in the log, too."""
    patterns = " ".join(f"-e '[{secret[0]}]{secret[1:]}'" for secret in secrets)
    skipped = " ".join(f"--exclude-dir={name}" for name in ("proc", "sys", "dev", "usr"))
    return set(on(user, host, f"sudo grep -rls {skipped} {patterns} / || true").split())


def _body(private: Path) -> str:
    """A line of the key that no other key has."""
    return private.read_text().splitlines()[3]


def test_destroy_leaves_nothing_in_the_cloud_and_no_machine_here(
    lab: User, cloud: ControlPlane, stages: Stages
) -> None:
    for number, memory in enumerate(machines().values(), start=1):
        stages.note(f"memory of machine {number}, at most", f"{memory:.0f} MB")
    stages.note("memory of all services and this test", f"{services_mb():.0f} MB")
    with stages.stage("destroy"):
        removed = succeeds(lab.labctl("destroy", "--yes", "--json")).json
    assert removed["left"] == []
    assert sorted(each["kind"] for each in removed["deleted"]) == [
        "security-group",
        "server",
        "server",
        "server-group",
    ]
    assert inventory(cloud) == {}
    assert machines() == {}
    kept = {path.name for path in (cloud.folder / "nova" / "instances").iterdir() if path.is_dir()}
    assert kept <= {"_base", "locks"}
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    # Our bridge, the agent's end in it, loopback: no machine is plugged in any more.
    assert len(links.splitlines()) == 3
    assert cloud.connect("admin").network.find_network(libvirt.NETWORK) is not None
