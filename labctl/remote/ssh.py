"""Connections to the hosts of a lab: one each, opened when first needed, used for everything, closed together.

A host is who we think it is, or nothing is done at all: its key must be the one that is written down for the
lab. No key is ever accepted because it is the first. Our agent is not forwarded, and no file of the user's
own SSH configuration changes what happens here.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from labctl.exits import LabError
from labctl.testbeds import keys
from labctl.testbeds.lab import Host, Lab
from labctl.testbeds.store import Store
from labctl.testbeds.testbed import Bastion, HostsOptions, Testbed
from labctl.testbeds.timeouts import Timeouts

if TYPE_CHECKING:
    import fabric
    import paramiko

KNOWN_HOSTS = ("~/.ssh/known_hosts", "/etc/ssh/ssh_known_hosts")
"""The user's own, for machines whose keys are not ours to make."""


class SshError(LabError):
    """A host cannot be reached, or does not let us in."""


class HostKeyChanged(SshError):
    """Somebody else answers at the address of a host. Nothing goes on."""


class Connections:
    def __init__(self, store: Store, lab: Lab) -> None:
        self.lab = lab
        self._store = store
        self._timeouts: Timeouts = lab.testbed.timeouts
        self._open: dict[str, fabric.Connection] = {}
        self._guards = {host.name: threading.Lock() for host in lab.hosts}
        self._gate: fabric.Connection | None = None
        self._gate_guard = threading.Lock()

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
        connection = self._connection(host.user, host.address, host.port, self._gateway())
        _trust(connection.client, host.address, host.port, host.host_key)
        _open(connection, host.name, self._timeouts)
        return connection

    def _gateway(self) -> fabric.Connection | None:
        bastion = self.lab.testbed.reach
        if not isinstance(bastion, Bastion):
            return None
        with self._gate_guard:
            if self._gate is None or not self._gate.is_connected:
                user = bastion.user or self.lab.testbed.user
                gate = self._connection(user, bastion.host, bastion.port, None)
                _trust(gate.client, bastion.host, bastion.port, bastion.host_key)
                _open(gate, f"bastion {bastion.host}", self._timeouts)
                self._gate = gate
            return self._gate

    def _connection(
        self, user: str, address: str, port: int, gateway: fabric.Connection | None
    ) -> fabric.Connection:
        import fabric
        from paramiko import SSHConfig

        # What goes wrong is told by our own errors; the library would print tracebacks of its threads.
        logging.getLogger("paramiko").setLevel(logging.CRITICAL)
        settings = fabric.Config(overrides={"forward_agent": False}, lazy=True, ssh_config=SSHConfig())
        return fabric.Connection(
            address,
            user=user,
            port=port,
            config=settings,
            gateway=gateway,
            forward_agent=False,
            connect_timeout=self._timeouts.connect_s,
            connect_kwargs={
                **_who_we_are(self._store, self.lab.testbed),
                "banner_timeout": self._timeouts.login_s,
                "auth_timeout": self._timeouts.login_s,
                "channel_timeout": self._timeouts.login_s,
            },
        )


def _who_we_are(store: Store, testbed: Testbed) -> dict[str, Any]:
    options = testbed.options
    if not isinstance(options, HostsOptions):
        return {"key_filename": str(store.key_file), "look_for_keys": False, "allow_agent": False}
    if options.identity:
        identity = str(Path(options.identity).expanduser())
        return {"key_filename": identity, "look_for_keys": False, "allow_agent": False}
    return {"look_for_keys": True, "allow_agent": True}


def _trust(client: paramiko.SSHClient, address: str, port: int, key: str) -> None:
    """This key and no other or, for want of one, what the user's own files say."""
    from paramiko import RejectPolicy

    client.set_missing_host_key_policy(RejectPolicy())
    if key:
        client.get_host_keys().add(keys.known_name(address, port), *_parsed(key))
        return
    for name in KNOWN_HOSTS:
        path = Path(name).expanduser()
        if path.exists():
            client.load_system_host_keys(str(path))


def _parsed(line: str) -> tuple[str, paramiko.PKey]:
    from paramiko import PKey, SSHException

    kind, text = line.split()[:2]
    try:
        return kind, PKey.from_type_string(kind, base64.b64decode(text))
    except (SSHException, ValueError, AttributeError) as error:
        raise SshError(f"{line[:40]!r} is no host key that can be checked: {error}") from None


def fingerprint(key: bytes) -> str:
    """As ssh-keygen writes it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")


def _open(connection: fabric.Connection, name: str, timeouts: Timeouts) -> None:
    from paramiko import AuthenticationException, BadHostKeyException, SSHException
    from paramiko.ssh_exception import NoValidConnectionsError

    where = f"{name} ({connection.host}:{connection.port})"
    try:
        _dial(connection, timeouts)
    except BadHostKeyException as error:
        raise HostKeyChanged(
            f"the host key of {where} is {fingerprint(error.key.asbytes())}, and it should be "
            f"{fingerprint(error.expected_key.asbytes())}: somebody else answers at this address. Nothing was "
            "sent to it. If the machine was replaced, destroy the lab and provision it again"
        ) from None
    except AuthenticationException as error:
        raise SshError(f"{where} does not let {connection.user!r} in: {error}") from None
    except NoValidConnectionsError as error:
        reasons = {_words(reason) for reason in error.errors.values()}
        raise SshError(f"{where} cannot be reached: {', '.join(sorted(reasons))}") from None
    except SSHException as error:
        if "not found in known_hosts" in str(error):
            raise HostKeyChanged(
                f"the host key of {where} is not known; write it as `host_key` in the testbed file, or log in "
                "once with ssh and compare it"
            ) from None
        raise SshError(f"{where} cannot be logged in to: {error}") from None
    except TimeoutError:
        raise SshError(f"{where} does not answer within {timeouts.connect_s:g} s") from None
    except (OSError, EOFError) as error:
        raise SshError(f"{where} cannot be reached: {_words(error)}") from None
    transport = connection.transport
    assert transport is not None
    transport.set_keepalive(int(max(1, timeouts.keepalive_s)))
    _notice_silence(transport, 3 * timeouts.keepalive_s)


def _dial(connection: fabric.Connection, timeouts: Timeouts) -> None:
    """Who is refused tries again for a while: cloud-init starts sshd a second time, after it has first answered."""
    from paramiko.ssh_exception import NoValidConnectionsError

    deadline = time.monotonic() + timeouts.connect_s
    while True:
        try:
            connection.open()
            return
        except NoValidConnectionsError as error:
            refused = all(isinstance(reason, ConnectionRefusedError) for reason in error.errors.values())
            if not refused or time.monotonic() > deadline:
                raise
        time.sleep(timeouts.poll_s)


def _notice_silence(transport: paramiko.Transport, silence_s: float) -> None:
    """The kernel gives up a connection whose data nobody acknowledges, instead of after a quarter of an hour."""
    if isinstance(transport.sock, socket.socket):
        transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(silence_s * 1000))


def _words(error: BaseException) -> str:
    return (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__


def words_of(store: Store, lab: Lab, host: Host) -> list[str]:
    """A plain `ssh` to a host, as strict as we are."""
    options = {
        "UserKnownHostsFile": str(store.known_hosts_file),
        "StrictHostKeyChecking": "yes",
        "ForwardAgent": "no",
        "ConnectTimeout": f"{lab.testbed.timeouts.connect_s:.0f}",
        # One a second, like ours.
        "ConnectionAttempts": f"{lab.testbed.timeouts.connect_s:.0f}",
    }
    kept = lab.testbed.options
    identity = kept.identity if isinstance(kept, HostsOptions) else str(store.key_file)
    if isinstance(kept, HostsOptions) and not host.host_key:
        del options["UserKnownHostsFile"]
    words = ["ssh", *(part for name, value in options.items() for part in ("-o", f"{name}={value}"))]
    if identity:
        words += ["-o", "IdentitiesOnly=yes", "-i", str(Path(identity).expanduser())]
    bastion = lab.testbed.reach
    if isinstance(bastion, Bastion):
        user = bastion.user or lab.testbed.user
        words += ["-J", f"{user}@{bastion.host}:{bastion.port}"]
    return [*words, "-p", str(host.port), f"{host.user}@{host.address}"]


Say = Callable[[str, str], None]
"""A host and a few words: what is going on there."""
