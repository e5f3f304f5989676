"""Namespaces come and go with their lab: nothing twice, nothing left, and nothing of anybody else's."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.labs import Command, require_namespaces

pytestmark = pytest.mark.slow

SIZE = ("--brokers", "1", "--clients", "1")


def ip(*words: str) -> list[str]:
    """Names of what there is on this machine."""
    done = subprocess.run(["ip", "-json", *words], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout or "[]")
    return sorted(each.get("name") or each["ifname"] for each in found)


def everything() -> tuple[list[str], list[str]]:
    """Only names that could be a lab's of this test: others come and go on this machine, too."""
    mine = [name for name in ip("link", "show") if name.startswith(("lv", "lb"))]
    return [name for name in ip("netns", "list") if name.startswith("labctl-")], mine


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    require_namespaces()
    labctl = Command(tmp_path, "10.79.1.0/24")
    before = everything()
    yield labctl
    labctl("destroy", "--lab", "p", "--yes")
    assert everything() == before


def provision(command: Command, *more: str, code: int = 0) -> str:
    testbed = ("--testbed", str(command.testbed))
    return command("provision", *testbed, "--lab", "p", *SIZE, *more, code=code)


def test_a_second_provision_creates_nothing_and_a_larger_one_only_what_is_missing(command: Command) -> None:
    plan = json.loads(provision(command, "--dry-run", "--json"))
    assert [each["kind"] for each in plan["create"]] == ["bridge", "namespace", "namespace"]
    provision(command)
    first = command.lab("p")["hosts"]
    seen = everything()
    provision(command)
    assert command.lab("p")["hosts"] == first
    assert everything() == seen
    command("provision", "--lab", "p", "--brokers", "2", "--clients", "1")
    hosts = command.lab("p")["hosts"]
    assert len(hosts) == 3
    assert [host for host in hosts if host["name"] != "broker-2"] == first


def test_the_bridge_keeps_its_hardware_address_whatever_is_plugged_in(command: Command) -> None:
    """Or what a host was sending to it is lost, and all that follows until the host asks for the new one."""
    provision(command)
    [bridge] = [name for name in ip("link", "show", "type", "bridge") if name.startswith("lb")]
    address = Path("/sys/class/net", bridge, "address")
    before = address.read_text()
    lowest = "02:00:00:00:00:01"
    subprocess.run(["ip", "link", "add", "lvlowest", "address", lowest, "type", "veth"], check=True)
    try:
        subprocess.run(["ip", "link", "set", "lvlowest", "master", bridge, "up"], check=True)
        assert address.read_text() == before
    finally:
        subprocess.run(["ip", "link", "delete", "lvlowest"], check=True)


def test_what_merely_looks_like_the_labs_survives(command: Command) -> None:
    provision(command)
    subprocess.run(["ip", "netns", "add", "labctl-ffffffffffffffff"], check=True)
    subprocess.run(["ip", "link", "add", "lvffffffffffff", "type", "bridge"], check=True)
    try:
        removed = json.loads(command("destroy", "--lab", "p", "--yes", "--json"))
        assert {each["kind"] for each in removed["deleted"]} == {"bridge", "namespace"}
        assert "labctl-ffffffffffffffff" in ip("netns", "list")
        assert "lvffffffffffff" in ip("link", "show")
    finally:
        subprocess.run(["ip", "netns", "delete", "labctl-ffffffffffffffff"], check=True)
        subprocess.run(["ip", "link", "delete", "lvffffffffffff"], check=True)


@pytest.mark.parametrize("moment", ["making its namespace", "waiting for sshd"])
def test_a_provision_that_was_killed_leaves_nothing_that_destroy_does_not_find(
    command: Command, moment: str
) -> None:
    with command.start("provision", "--testbed", str(command.testbed), "--lab", "p", *SIZE) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if moment in line:
                process.kill()
                break
    removed = json.loads(command("destroy", "--lab", "p", "--yes", "--json"))
    assert removed["left"] == []
    assert removed["deleted"]


def test_a_destroy_that_was_killed_is_finished_by_the_next(command: Command) -> None:
    provision(command)
    with command.start("destroy", "--lab", "p", "--yes") as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "gone" in line:
                process.kill()
                break
    assert json.loads(command("destroy", "--lab", "p", "--yes", "--json"))["left"] == []


def test_a_network_that_is_in_use_is_refused_by_name(command: Command) -> None:
    provision(command)
    said = command("provision", "--testbed", str(command.testbed), "--lab", "q", *SIZE, code=4)
    assert "10.79.1.0/24 is in use on this machine" in said
    command("destroy", "--lab", "q", "--yes")


def test_doctor_says_whether_this_machine_can_hold_the_lab(command: Command) -> None:
    found = json.loads(command("doctor", "--testbed", str(command.testbed), "--json"))
    assert found["ok"]
    assert {check["name"] for check in found["checks"]} >= {"root", "programs", "addresses", "network", "TLS"}
