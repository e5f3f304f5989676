"""Logging in by SSH to one machine, whose key must be the one that we know.

No key is ever accepted because it is the first. Our agent is not forwarded, and no file of the user's own SSH
configuration changes what happens here, but for the keys of machines that are not ours to make.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from labctl.exits import LabError
from labctl.retry import try_again
from labctl.testbeds.labs import keys
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


class Door(Struct, frozen=True):
    """Where to log in, as whom, and by which key the machine is known."""

    name: str
    """For people."""
    address: str
    port: int
    user: str
    host_key: str
    """Empty: the user's own known_hosts must have it."""
    identity: str
    """The file of our private key; empty: what ssh itself would use, the agent included."""


def log_in(door: Door, timeouts: Timeouts, gateway: fabric.Connection | None = None) -> fabric.Connection:
    """An open connection; raises `SshError`."""
    import fabric
    from paramiko import SSHConfig

    # What goes wrong is told by our own errors; the library would print tracebacks of its threads.
    logging.getLogger("paramiko").setLevel(logging.CRITICAL)
    settings = fabric.Config(overrides={"forward_agent": False}, lazy=True, ssh_config=SSHConfig())
    connection = fabric.Connection(
        door.address,
        user=door.user,
        port=door.port,
        config=settings,
        gateway=gateway,
        forward_agent=False,
        connect_timeout=timeouts.connect_s,
        connect_kwargs={
            **_who_we_are(door.identity),
            "banner_timeout": timeouts.login_s,
            "auth_timeout": timeouts.login_s,
            "channel_timeout": timeouts.login_s,
        },
    )
    _trust(connection.client, door.address, door.port, door.host_key)
    _open(connection, door.name, timeouts)
    return connection


def _who_we_are(identity: str) -> dict[str, Any]:
    if identity:
        key = str(Path(identity).expanduser())
        return {"key_filename": key, "look_for_keys": False, "allow_agent": False}
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


def other_key(connection: socket.socket | paramiko.Channel, host_key: str, limit_s: float) -> str:
    """What is wrong with the key of whoever answers; empty when it is this one. Nobody logs in for that."""
    from paramiko import SSHException, Transport

    kind, expected = _parsed(host_key)
    transport = Transport(connection)
    try:
        transport.get_security_options().key_types = [kind]
        transport.start_client(timeout=limit_s)
        seen = transport.get_remote_server_key()
    except (SSHException, OSError, EOFError) as error:
        return f"no {kind} key is shown: {_words(error)}"
    finally:
        transport.close()
    if seen == expected:
        return ""
    return f"its key is {fingerprint(seen.asbytes())}, and it should be {fingerprint(expected.asbytes())}"


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
    from paramiko import ChannelException
    from paramiko.ssh_exception import NoValidConnectionsError

    def is_refusal(error: Exception) -> bool:
        if isinstance(error, NoValidConnectionsError):
            return all(isinstance(reason, ConnectionRefusedError) for reason in error.errors.values())
        return isinstance(error, ChannelException)  # a bastion does not say more than that it could not

    try_again(is_refusal, connection.open, timeouts.connect_s, timeouts.poll_s)


def _notice_silence(transport: paramiko.Transport, silence_s: float) -> None:
    """The kernel gives up a connection whose data nobody acknowledges, instead of after a quarter of an hour."""
    if isinstance(transport.sock, socket.socket):
        transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(silence_s * 1000))


def _words(error: BaseException) -> str:
    return (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__
