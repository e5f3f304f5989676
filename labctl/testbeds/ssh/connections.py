"""Connections to the hosts of a lab: one each, opened when first needed, used for everything, closed together.

A host is who we think it is, or nothing is done at all: its key must be the one that is written down for the
lab (`labctl.testbeds.ssh.login`). Where there is a bastion, all of them go through one connection to it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from labctl.testbeds.labs.lab import Host, Lab
from labctl.testbeds.labs.store import Store
from labctl.testbeds.ssh.bastion import door_of, gate_of
from labctl.testbeds.ssh.login import Door, SshError, log_in
from labctl.testbeds.testbed import Bastion, HostsOptions
from labctl.testbeds.timeouts import Timeouts
from playbooks.steps import shell

if TYPE_CHECKING:
    import fabric


class Connections:
    def __init__(self, store: Store, lab: Lab) -> None:
        self.lab = lab
        self._store = store
        self._timeouts: Timeouts = lab.testbed.timeouts
        self._open: dict[str, fabric.Connection] = {}
        self._guards = {host.name: threading.Lock() for host in lab.hosts}
        self._gate = gate_of(lab.testbed)

    def __enter__(self) -> Connections:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def to(self, host: Host) -> fabric.Connection:
        """Raises `SshError`; a connection that has died is opened again."""
        with self._guards[host.name]:
            known = self._open.get(host.name)
            if known is not None and known.is_connected:
                return known
            if known is not None:
                known.close()
            made = self._login(host)
            self._open[host.name] = made
            return made

    def drop(self, host: Host) -> None:
        """A connection that says nothing any more."""
        with self._guards[host.name]:
            known = self._open.pop(host.name, None)
            if known is not None:
                known.close()

    def close(self) -> None:
        for connection in list(self._open.values()):
            connection.close()
        self._open.clear()
        if self._gate is not None:
            self._gate.close()

    def _login(self, host: Host) -> fabric.Connection:
        if not host.address:
            raise SshError(f"host {host.name} has no address; `labctl provision` makes one")
        gateway = self._gate.connection() if self._gate is not None else None
        return log_in(_door(self._store, self.lab, host), self._timeouts, gateway)


def _door(store: Store, lab: Lab, host: Host) -> Door:
    options = lab.testbed.options
    identity = options.identity if isinstance(options, HostsOptions) else str(store.key_file)
    return Door(host.name, host.address, host.port, host.user, host.host_key, identity)


def words_of(store: Store, lab: Lab, host: Host) -> list[str]:
    """A plain `ssh` to a host, as strict as we are."""
    connect_s = lab.testbed.timeouts.connect_s
    words = _plain_ssh(store, _door(store, lab, host), connect_s)
    bastion = lab.testbed.reach
    if isinstance(bastion, Bastion):
        # Not -J: the options that are given here would not hold for the bastion.
        *through, at = (
            word.replace("%", "%%") for word in _plain_ssh(store, door_of(lab.testbed, bastion), connect_s)
        )
        words[1:1] = ["-o", f"ProxyCommand={shell([*through, '-W', '[%h]:%p', at])}"]
    return words


def _plain_ssh(store: Store, door: Door, connect_s: float) -> list[str]:
    options = {
        "StrictHostKeyChecking": "yes",
        "ForwardAgent": "no",
        "ConnectTimeout": f"{connect_s:.0f}",
        # One a second, like ours.
        "ConnectionAttempts": f"{connect_s:.0f}",
    }
    if door.host_key:
        options["UserKnownHostsFile"] = str(store.known_hosts_file)
    words = ["ssh", *(part for name, value in options.items() for part in ("-o", f"{name}={value}"))]
    if door.identity:
        words += ["-o", "IdentitiesOnly=yes", "-i", str(Path(door.identity).expanduser())]
    return [*words, "-p", str(door.port), f"{door.user}@{door.address}"]


TellOfHost = Callable[[str, str], None]
"""A host and a few words: what is going on there."""
