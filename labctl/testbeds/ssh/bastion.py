"""The bastion of a lab: logged in to once, when first needed, and then the way to every host behind it."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING

from labctl.testbeds.ssh.login import Door, SshError, log_in
from labctl.testbeds.testbed import Bastion, HostsOptions, Testbed

if TYPE_CHECKING:
    import fabric
    import paramiko


class OpenBastion:
    def __init__(self, testbed: Testbed, bastion: Bastion) -> None:
        self._timeouts = testbed.timeouts
        self.door = door_of(testbed, bastion)
        self._open: fabric.Connection | None = None
        self._guard = threading.Lock()

    def __enter__(self) -> OpenBastion:
        self.connection()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def connection(self) -> fabric.Connection:
        """Raises `SshError`; a connection that has died is opened again."""
        with self._guard:
            if self._open is None or not self._open.is_connected:
                self._open = log_in(self.door, self._timeouts)
            return self._open

    def dial(self, address: str, port: int, limit_s: float) -> paramiko.Channel:
        """A connection from the bastion to somebody behind it; raises `OSError` like one from here."""
        from paramiko import ChannelException, SSHException

        transport = self.connection().transport
        assert transport is not None
        try:
            channel: paramiko.Channel = transport.open_channel(
                "direct-tcpip", (address, port), ("127.0.0.1", 0), timeout=limit_s
            )
        except ChannelException as error:
            raise ConnectionError(f"the bastion says: {error.text or 'no'}") from None
        except SSHException as error:
            if transport.is_active():
                raise TimeoutError from None
            raise SshError(f"{self.door.name} was lost: {error}") from None
        return channel

    def close(self) -> None:
        if self._open is not None:
            self._open.close()


def gate_of(testbed: Testbed) -> OpenBastion | None:
    """None: hosts are reached from here."""
    return OpenBastion(testbed, testbed.reach) if isinstance(testbed.reach, Bastion) else None


def door_of(testbed: Testbed, bastion: Bastion) -> Door:
    """The bastion is a machine of the user's, whose own key opens it: the lab's would have to be brought there."""
    options = testbed.options
    own = options.identity if isinstance(options, HostsOptions) else ""
    return Door(
        name=f"bastion {bastion.host}",
        address=bastion.host,
        port=bastion.port,
        user=bastion.user or testbed.user,
        host_key=bastion.host_key,
        identity=bastion.identity or own,
    )
