"""The line to the agent of a host: what it has to be able to do, and how it does it over SSH."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from labctl.run.station import AgentLine

if TYPE_CHECKING:
    import paramiko


class BreakableLine(AgentLine, Protocol):
    def give_up(self, why: str) -> None:
        """Whoever receives hears that the line has ended."""


class SshLine:
    """A line over SSH."""

    def __init__(self, channel: paramiko.Channel, end_s: float) -> None:
        self._channel = channel
        self._end_s = end_s
        self._given_up = ""

    def send(self, data: bytes) -> None:
        self._channel.sendall(data)

    def receive(self) -> bytes:
        return self._channel.recv(1 << 16)

    def close(self) -> None:
        """The agent sees the end of its input, stops what it has started, and ends."""
        self._channel.shutdown_write()
        self._channel.status_event.wait(self._end_s)
        self._channel.close()

    def give_up(self, why: str) -> None:
        self._given_up = why
        self._channel.close()

    def why(self) -> str:
        said = b""
        while self._channel.recv_stderr_ready():
            said += self._channel.recv_stderr(1 << 16)
        lines = said.decode(errors="replace").strip().splitlines()
        transport = self._channel.get_transport()
        ended = "" if transport is not None and transport.is_active() else "the SSH connection has ended"
        return self._given_up or (lines[-1] if lines else ended)
