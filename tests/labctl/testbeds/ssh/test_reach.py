"""Whether an sshd answers, asked of real sockets on loopback."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from labctl.testbeds.labs.lab import Host
from labctl.testbeds.ssh import reach
from labctl.testbeds.ssh.login import SshError
from labctl.testbeds.testbed import Bastion, HostsOptions, Testbed
from labctl.testbeds.timeouts import Timeouts

QUICK = Testbed("hosts", HostsOptions(), timeouts=Timeouts(boot_s=0.05, connect_s=0.5, poll_s=0.01))


@pytest.fixture
def greeting() -> Iterator[tuple[int, list[bytes]]]:
    """A port, and the greetings that its next visitors get; the last one stays."""
    words = [b"SSH-2.0-test\r\n"]
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    visitor, _ = server.accept()
                except OSError:
                    return
                with visitor:
                    visitor.sendall(words.pop(0) if len(words) > 1 else words[0])

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1], words
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def host(port: int, name: str = "broker-1") -> Host:
    return Host(name, "broker", "debian", port, "127.0.0.1")


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_an_sshd_is_known_by_its_greeting(greeting: tuple[int, list[bytes]]) -> None:
    port, words = greeting
    assert reach.answer("127.0.0.1", port, 1.0) == ""
    words[0] = b"220 mail\r\n"
    assert "not sshd" in reach.answer("127.0.0.1", port, 1.0)


def test_hosts_that_answer_are_told_from_those_that_do_not(greeting: tuple[int, list[bytes]]) -> None:
    up: list[str] = []
    hosts = [host(greeting[0], "up"), host(closed_port(), "down")]
    silent = reach.wait_for_sshd(hosts, QUICK, lambda each: up.append(each.name))
    assert up == ["up"]
    assert silent == {"down": "Connection refused"}


def test_a_host_is_asked_again_until_it_answers(greeting: tuple[int, list[bytes]]) -> None:
    port, words = greeting
    words.insert(0, b"booting\r\n")
    patient = Testbed("hosts", HostsOptions(), timeouts=Timeouts(boot_s=60.0, poll_s=0.01))
    up: list[str] = []
    assert reach.wait_for_sshd([host(port)], patient, lambda each: up.append(each.name)) == {}
    assert up == ["broker-1"]


def test_a_bastion_that_cannot_be_reached_is_told_before_any_host_is_asked() -> None:
    behind = Testbed(
        "hosts", HostsOptions(), reach=Bastion("127.0.0.1", "me", closed_port()), timeouts=QUICK.timeouts
    )
    with pytest.raises(SshError, match=r"bastion 127\.0\.0\.1 .* cannot be reached: Connection refused"):
        reach.wait_for_sshd([host(closed_port())], behind, lambda each: pytest.fail(each.name))
    [check] = reach.examine(behind)
    assert not check.ok
    assert reach.examine(QUICK) == []
