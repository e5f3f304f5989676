"""Hosts that are reached through a bastion: a real sshd that forwards, with a key of its own on either side."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from labctl.testbeds.labs import keys
from labctl.testbeds.labs.lab import Host
from labctl.testbeds.providers.netns.machine import program
from labctl.testbeds.ssh import reach
from labctl.testbeds.testbed import HostsOptions, Testbed
from labctl.testbeds.timeouts import Timeouts
from tests.openstack.services import free_ports
from tests.support.brokers import wait_for
from tests.support.labs import Command, require_namespaces

pytestmark = pytest.mark.slow

SIZE = ("--brokers", "3", "--clients", "4", "--machines", "2")


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    """labctl with a lab of two hosts."""
    require_namespaces()
    (tmp_path / "netns").mkdir()
    labctl = Command(tmp_path / "netns", "10.82.0.0/24")
    try:
        labctl("provision", "--testbed", str(labctl.testbed), "--lab", "l", *SIZE)
        yield labctl
    finally:
        assert json.loads(labctl("destroy", "--lab", "l", "--yes", "--json"))["left"] == []


class Gate:
    """An sshd on loopback that lets one key in and forwards."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.host_key = " ".join(keys.ensure_pair(folder / "host_key", "gate").split()[:2])
        self.identity = folder / "id_gate"
        (folder / "authorized_keys").write_text(keys.ensure_pair(self.identity, "visitor") + "\n")
        [self.port] = free_ports(1)
        self.log = folder / "log"
        self._config = folder / "sshd_config"
        self._config.write_text(
            f"ListenAddress 127.0.0.1\nPort {self.port}\nHostKey {folder}/host_key\nPidFile none\n"
            f"AuthorizedKeysFile {folder}/authorized_keys\nStrictModes no\nUsePAM no\nLogLevel VERBOSE\n"
            "PermitRootLogin prohibit-password\nPasswordAuthentication no\nAllowTcpForwarding local\n"
        )

    @contextmanager
    def open(self) -> Iterator[None]:
        own_run = "mount -t tmpfs none /run && mkdir -m 755 /run/sshd && exec"
        words = f"{own_run} {program('sshd')} -D -f {self._config} -E {self.log}"
        sshd = subprocess.Popen(["unshare", "--mount", "sh", "-c", words])
        try:
            wait_for("the gate", lambda: not reach.answer("127.0.0.1", self.port, 1.0), 30)
            yield
        finally:
            sshd.terminate()
            sshd.wait(10)

    def visits(self) -> int:
        return self.log.read_text().count("Accepted publickey")


def behind(gate: Gate, command: Command, host_key: str) -> Path:
    """The hosts of the lab as machines that exist already, with the bastion before them."""
    hosts = "".join(
        f"  - {{address: {host['address']}, role: {host['role']}, host_key: {host['host_key']}}}\n"
        for host in command.lab()["hosts"]
    )
    file = command.folder / "behind.yaml"
    file.write_text(
        f"provider: hosts\nmachines: 2\nuser: root\nidentity: {command.lab_file().with_name('id_ed25519')}\nhosts:\n{hosts}"
        f"reach: {{bastion: '127.0.0.1:{gate.port}', host_key: {host_key}, identity: {gate.identity}}}\n"
    )
    return file


def test_all_goes_through_the_bastion_and_nothing_past_it(command: Command, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    testbed = str(behind(gate, command, gate.host_key))
    with gate.open():
        assert "bastion 127.0.0.1" in command("doctor", "--testbed", testbed)
        command("provision", "--testbed", testbed, "--lab", "far", *SIZE)
        before = gate.visits()
        command(*command.run(lab="far"))
        assert gate.visits() == before + 1
        assert json.loads((command.result / "run.json").read_text())["testbed"]["kind"] == "hosts"
        assert "ready" in command("status", "--lab", "far")
        if shutil.which("ssh"):
            assert command("ssh", "broker-1", "--lab", "far", "--", "echo", "hello") == "hello\n"
    told = command("status", "--lab", "far", code=4)
    assert "bastion 127.0.0.1" in told
    assert "Connection refused" in told
    with gate.open():
        assert json.loads(command("destroy", "--lab", "far", "--yes", "--json"))["left"] == []


def test_somebody_else_in_the_place_of_the_bastion_stops_everything(command: Command, tmp_path: Path) -> None:
    gate, other = Gate(tmp_path / "gate"), Gate(tmp_path / "other")
    testbed = str(behind(gate, command, other.host_key))
    with gate.open():
        told = command("provision", "--testbed", testbed, "--lab", "far", *SIZE, code=4)
    assert "the host key of bastion 127.0.0.1" in told
    assert "somebody else answers" in told
    assert gate.visits() == 0
    assert not command.lab_file("far").exists()


def test_who_answers_with_another_key_is_not_ready(tmp_path: Path) -> None:
    """The sshd is real; only the key that is written down for the host differs."""
    require_namespaces()
    gate, other = Gate(tmp_path / "gate"), Gate(tmp_path / "other")
    bed = Testbed("hosts", HostsOptions(), timeouts=Timeouts(boot_s=0.5, poll_s=0.1))
    known, wrong = (
        Host(name, "broker", "root", gate.port, "127.0.0.1", host_key=key)
        for name, key in (("known", gate.host_key), ("wrong", other.host_key))
    )
    ready: list[str] = []
    with gate.open():
        problems = reach.wait_for_sshd([known, wrong], bed, lambda host: ready.append(host.name))
    assert ready == ["known"]
    assert set(problems) == {"wrong"}
    assert "its key is SHA256:" in problems["wrong"]
