"""Hosts of a lab: who runs where, namespaces in words, machines that exist already, packages, plain ssh."""

from __future__ import annotations

import importlib.metadata
import shlex
import socket
import threading
import time
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec import structs

from labctl.testbeds.labs import lab
from labctl.testbeds.labs.keys import known_hosts
from labctl.testbeds.labs.lab import Lab
from labctl.testbeds.labs.store import Store
from labctl.testbeds.providers import hosts
from labctl.testbeds.providers.netns import commands
from labctl.testbeds.providers.netns.commands import Plot
from labctl.testbeds.providers.provider import ProviderError
from labctl.testbeds.remote import wheels
from labctl.testbeds.remote.placing import TooFewHosts, place, tournament
from labctl.testbeds.remote.wheels import HostKind, WheelError
from labctl.testbeds.ssh.connections import Connections, words_of
from labctl.testbeds.ssh.login import SshError
from labctl.testbeds.testbed import Bastion, HostEntry, HostsOptions, Testbed
from labctl.testbeds.testbed_file import resolve
from labctl.testbeds.timeouts import Timeouts


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))


def of(brokers: int, clients: int, testbed: Testbed | None = None) -> Lab:
    return lab.sized(lab.new("l", testbed or resolve("netns"), 0.0), brokers, clients)


def test_every_process_has_a_host_of_its_role_to_itself() -> None:
    there = of(3, 2)
    placed = place(there, there.hosts, ["b1", "b2"], ["E", "D"], pack=False)
    assert {node: host.name for node, host in placed.items()} == {
        "b1": "broker-1",
        "b2": "broker-2",
        "E": "client-1",
        "D": "client-2",
    }


def test_too_few_hosts_are_told_with_the_way_out() -> None:
    there = of(1, 1)
    with pytest.raises(TooFewHosts, match=r"3 brokers for 1 hosts .* --brokers 3.* --pack"):
        place(there, there.hosts, ["b1", "b2", "b3"], [], pack=False)


def test_packed_processes_go_round_the_hosts_there_are() -> None:
    there = of(2, 0)
    placed = place(there, there.hosts, ["b1", "b2", "b3"], ["E", "D"], pack=True)
    assert [host.name for host in placed.values()] == [
        "broker-1",
        "broker-2",
        "broker-1",
        "broker-1",
        "broker-2",
    ]


def test_in_a_lab_of_fewer_machines_nobody_has_to_say_that_hosts_are_shared() -> None:
    there = of(3, 4, structs.replace(resolve("netns"), machines=2))
    placed = place(there, there.hosts, ["b1", "b2", "b3"], ["E", "D"], pack=False)
    assert [host.name for host in placed.values()] == [*["broker-1"] * 3, *["client-1"] * 2]
    alone = of(3, 4, structs.replace(resolve("netns"), machines=1))
    placed = place(alone, alone.hosts, ["b1", "b2", "b3"], ["E", "D"], pack=False)
    assert {host.name for host in placed.values()} == {"broker-1"}


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_in_a_tournament_all_meet_all_once_and_nobody_two_at_a_time(count: int) -> None:
    names = [str(number) for number in range(count)]
    rounds = tournament(names)
    met = [frozenset(pair) for pairs in rounds for pair in pairs]
    assert sorted(met, key=sorted) == sorted(map(frozenset, combinations(names, 2)), key=sorted)
    for pairs in rounds:
        busy = [name for pair in pairs for name in pair]
        assert len(busy) == len(set(busy))


def test_who_is_refused_tries_again_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """An sshd that is started once more; here nobody answers before the first pause, and then no sshd."""
    patient = structs.replace(resolve("netns"), timeouts=Timeouts(connect_s=5.0, poll_s=0.05, login_s=2.0))
    place = Store("l")
    there = place.make_keys(of(1, 0, patient))
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        host = structs.replace(there.hosts[0], address="127.0.0.1", port=reserved.getsockname()[1])

        def answer() -> None:
            with reserved.accept()[0] as peer:
                peer.sendall(b"SSH-1.0-old\r\n")

        late = threading.Thread(target=answer)

        def begin(_: float) -> None:
            reserved.listen()
            late.start()

        with monkeypatch.context() as patch, Connections(place, there) as connections:
            patch.setattr("labctl.retry.time", SimpleNamespace(monotonic=time.monotonic, sleep=begin))
            with pytest.raises(SshError, match="cannot be logged in to"):
                connections.to(host)
        late.join()
    impatient = structs.replace(patient, timeouts=Timeouts(connect_s=0.2, poll_s=0.05))
    there = structs.replace(there, testbed=impatient)
    with Connections(place, there) as connections, pytest.raises(SshError, match="Connection refused"):
        connections.to(host)


def test_names_of_namespaces_carry_their_mark_and_fit_the_kernel() -> None:
    plot = Plot.of("0123456789abcdef", "10.78.0.2", 22)
    assert plot.namespace == "labctl-0123456789abcdef"
    assert len(plot.outside) <= 15
    assert len(commands.bridge_name("0123456789abcdef")) <= 15
    made = commands.make_namespace(plot, "lb")
    assert ["ip", "netns", "add", plot.namespace] in made
    assert commands.hardware_address("10.78.0.2") == "02:4c:0a:4e:00:02"


def test_a_network_that_is_too_small_offers_fewer_addresses() -> None:
    assert commands.addresses("10.78.0.0/29", 9) == ("10.78.0.1", [f"10.78.0.{n}" for n in range(2, 7)])


def test_sshd_lets_nobody_in_but_the_labs_key() -> None:
    text = commands.sshd_config(Plot.of("0" * 16, "10.78.0.2", 22), 22, "root", 15.0)
    lines = dict(line.split(" ", 1) for line in text.splitlines())
    assert lines["PasswordAuthentication"] == lines["KbdInteractiveAuthentication"] == "no"
    assert lines["AllowAgentForwarding"] == lines["AllowTcpForwarding"] == "no"
    assert lines["ListenAddress"] == "10.78.0.2"
    assert lines["AllowUsers"] == "root"


def test_without_root_there_are_no_namespaces_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from labctl.testbeds.providers.netns import provider

    monkeypatch.setattr("os.geteuid", lambda: 1000)
    there = of(1, 1)
    with pytest.raises(ProviderError, match="need root"):
        provider.connect(there.testbed).acquire(Store("l"), there, lambda host, text: None)


ENTRIES = (
    HostEntry("192.0.2.1", name="alpha", role="client", host_key="ssh-ed25519 AAAA comment"),
    HostEntry("192.0.2.2", user="me", port=2222, inside="10.0.0.2"),
    HostEntry("192.0.2.3"),
)


def existing(*entries: HostEntry) -> Testbed:
    return structs.replace(resolve("hosts"), options=HostsOptions(entries))


def test_machines_are_given_to_whoever_needs_them_by_role_first() -> None:
    testbed = existing(*ENTRIES)
    plan = hosts.connect(testbed).plan(Store("l"), of(1, 2, testbed))
    assert [creation.name.partition(":")[0] for creation in plan.create] == [
        "192.0.2.2",
        "192.0.2.1",
        "192.0.2.3",
    ]


def test_too_few_machines_are_told() -> None:
    testbed = existing(*ENTRIES)
    with pytest.raises(ProviderError, match="no machine is left for client-2"):
        hosts.connect(testbed).plan(Store("l"), of(2, 2, testbed))


def test_a_machine_whose_key_nobody_knows_is_not_logged_in_to() -> None:
    testbed = existing(HostEntry("192.0.2.9"))
    there = of(1, 0, testbed)
    Store("l").write(there)
    made = hosts.connect(testbed).acquire(Store("l"), there, lambda host, text: None)
    assert made.hosts[0].state == "failed"
    assert "host key of 192.0.2.9 is not known" in made.hosts[0].detail


def test_the_users_own_known_hosts_vouch_for_a_machine(tmp_path: Path) -> None:
    key = Store("k").make_keys(of(1, 0)).hosts[0].host_key
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "known_hosts").write_text(f"[192.0.2.9]:2222 {key}\n")
    assert hosts.known_key("192.0.2.9", 2222) == key
    assert hosts.known_key("192.0.2.9", 22) == ""


def test_a_plain_ssh_checks_keys_and_forwards_no_agent() -> None:
    store, there = Store("l"), of(1, 0)
    there = there.with_host(structs.replace(there.hosts[0], address="10.78.0.2", host_key="ssh-ed25519 AAAA"))
    words = words_of(store, there, there.hosts[0])
    assert "StrictHostKeyChecking=yes" in words
    assert "ForwardAgent=no" in words
    assert f"UserKnownHostsFile={store.known_hosts_file}" in words
    assert words[-1] == "root@10.78.0.2"


def test_a_plain_ssh_through_a_bastion_is_as_strict_with_the_bastion() -> None:
    store, there = Store("l"), of(1, 0)
    gate = Bastion("gate", "me", 2200, "ssh-ed25519 BBBB", "/keys/100%")
    there = structs.replace(there, testbed=structs.replace(there.testbed, reach=gate))
    there = there.with_host(structs.replace(there.hosts[0], address="10.78.0.2", host_key="ssh-ed25519 AAAA"))
    [proxy] = [word for word in words_of(store, there, there.hosts[0]) if word.startswith("ProxyCommand=")]
    words = shlex.split(proxy.removeprefix("ProxyCommand="))
    assert {"StrictHostKeyChecking=yes", "ForwardAgent=no", "IdentitiesOnly=yes"} <= set(words)
    assert f"UserKnownHostsFile={store.known_hosts_file}" in words
    assert words[words.index("-i") + 1] == "/keys/100%%"
    assert words[-5:] == ["-p", "2200", "-W", "[%h]:%p", "me@gate"]
    assert known_hosts(there) == "10.78.0.2 ssh-ed25519 AAAA\n[gate]:2200 ssh-ed25519 BBBB\n"


def test_packages_are_those_installed_here_and_made_once() -> None:
    bundle = wheels.packages(wheels.own())
    assert bundle.unpacked_bytes > len(bundle.content) > 1_000_000
    assert wheels.packages(wheels.own()) == bundle
    kept = next(iter((wheels._folder()).glob("*.tar.gz")))
    kept.write_bytes(b"damaged")
    assert wheels.packages(wheels.own()).digest == bundle.digest


def test_a_file_that_was_changed_after_its_installation_is_not_brought_to_hosts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    genuine = importlib.metadata.files

    def files(package: str) -> object:
        found = genuine(package) or []
        for entry in found:
            if str(entry).endswith("__init__.py") and entry.hash is not None:
                entry.hash.value = "other"
        return found

    monkeypatch.setattr(importlib.metadata, "files", files)
    with pytest.raises(WheelError, match="is not what was installed"):
        wheels.packages(wheels.own())


def test_a_kind_of_host_that_no_package_is_made_for_is_told() -> None:
    with pytest.raises(WheelError, match="no packages are known"):
        wheels.packages(HostKind((3, 11), "x86_64", "dietlibc"))
