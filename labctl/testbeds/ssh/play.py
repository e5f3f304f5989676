"""Carries playbooks out: on all hosts at once over SSH, or, for a dry run, only in words."""

from __future__ import annotations

import io
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from labctl.exits import LabError
from labctl.testbeds.labs.lab import Host, Lab
from labctl.testbeds.ssh.connections import Connections
from labctl.testbeds.ssh.line import BreakableLine, SshLine
from labctl.testbeds.ssh.login import HostKeyChanged, SshError
from playbooks.steps import Attach, CommandResult, Fetch, Playbook, PlaybookError, Run, Step, Target

if TYPE_CHECKING:
    import paramiko

Made = TypeVar("Made")
AT_ONCE = 64
BLOCK_BYTES = 1 << 16


class PlayError(LabError):
    """Something on a host did not go as it should; the sentence says what to do."""


@dataclass(frozen=True)
class PlayResult(Generic[Made]):
    """What became of a playbook on one host: what it returned, or why it did not."""

    host: Host
    made: Made | None = None
    error: LabError | None = None
    seconds: float = 0.0


def target(lab: Lab, host: Host) -> Target:
    """Two names may be one machine, so the folder has the host's name in it."""
    return Target(host.name, f".labctl/{lab.id}/{host.name}")


class Player:
    """Does the steps of playbooks on the hosts of a lab."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self.lab = connections.lab
        self._timeouts = self.lab.testbed.timeouts

    def on(self, host: Host, playbook: Playbook[Made]) -> Made:
        """One host, now. An `Attach` is not for here: `attach` returns its line."""
        try:
            step = next(playbook)
            while True:
                step = playbook.send(self._do(host, step))
        except StopIteration as end:
            made: Made = end.value
            return made
        except PlaybookError as error:
            raise PlayError(str(error)) from None

    def everywhere(
        self, hosts: Sequence[Host], playbook: Callable[[Host], Playbook[Made]]
    ) -> list[PlayResult[Made]]:
        """On all of them at once. A host whose key is wrong ends it for all."""
        return self.each(hosts, lambda host: self.on(host, playbook(host)))

    def each(self, hosts: Sequence[Host], do: Callable[[Host], Made]) -> list[PlayResult[Made]]:
        def one(host: Host) -> PlayResult[Made]:
            began = time.monotonic()
            try:
                return PlayResult(host, do(host), None, time.monotonic() - began)
            except LabError as error:
                return PlayResult(host, None, error, time.monotonic() - began)

        if not hosts:
            return []
        pool = ThreadPoolExecutor(min(AT_ONCE, len(hosts)))
        try:
            outcomes = list(pool.map(one, hosts))
        except BaseException:
            # An interrupt: whatever waits for a host is to end now, not when its time is over.
            pool.shutdown(wait=False, cancel_futures=True)
            self.connections.close()
            raise
        finally:
            pool.shutdown()
        for outcome in outcomes:
            if isinstance(outcome.error, HostKeyChanged):
                raise outcome.error
        return outcomes

    def attach(self, host: Host, playbook: Playbook[None]) -> BreakableLine:
        step = next(playbook)
        assert isinstance(step, Attach)
        return SshLine(self._channel(host, step.command), self._timeouts.command_s)

    def _do(self, host: Host, step: Step) -> CommandResult:
        if isinstance(step, Attach):
            raise PlayError(f"{host.name}: a playbook that stays must be attached")
        if isinstance(step, Fetch):
            return self._fetch(host, step)
        limits_s = {
            "command": self._timeouts.command_s,
            "transfer": self._timeouts.transfer_s,
            "boot": self._timeouts.boot_s,
        }
        result = self._run(host, step, limits_s[step.takes])
        if result.code and not step.may_fail:
            raise PlayError(f"{host.name}, {step.why}: {result.last_words}")
        return result

    def _run(self, host: Host, step: Run, limit_s: float) -> CommandResult:
        with self._session(host, step.command, limit_s, step.why) as channel:
            errors = io.BytesIO()
            out = io.BytesIO()
            sender = _Sender(channel, step.sends)
            for block in _blocks(channel.recv):
                out.write(block)
            for block in _blocks(channel.recv_stderr):
                errors.write(block)
            sender.join()
            code = channel.recv_exit_status()
        return CommandResult(
            code, out.getvalue().decode(errors="replace"), errors.getvalue().decode(errors="replace")
        )

    def _fetch(self, host: Host, step: Fetch) -> CommandResult:
        with self._session(host, step.command, self._timeouts.transfer_s, step.why) as channel:
            channel.shutdown_write()
            try:
                with tarfile.open(fileobj=channel.makefile("rb"), mode="r|gz") as archive:
                    _unpack(archive, step.into)
            except (tarfile.TarError, EOFError, OSError) as error:
                said = b"".join(_blocks(channel.recv_stderr)).decode(errors="replace").strip()
                words = said.splitlines()[-1] if said else str(error)
                raise PlayError(f"{host.name}, {step.why}: {words}") from None
            for _ in _blocks(channel.recv):  # what fills the archive's last block
                pass
            code = channel.recv_exit_status()
        return CommandResult(code)

    @contextmanager
    def _session(self, host: Host, command: str, limit_s: float, why: str) -> Iterator[paramiko.Channel]:
        """A channel that is closed when its time is over, whatever it waits for then."""
        channel = self._channel(host, command)
        late = threading.Event()

        def give_up() -> None:
            late.set()
            channel.close()

        timer = threading.Timer(limit_s, give_up)
        timer.daemon = True
        timer.start()
        try:
            yield channel
            if late.is_set():
                raise PlayError(f"{host.name}, {why}: not done within {limit_s:g} s")
            if not self._is_up(channel):
                raise SshError(f"the connection to {host.name} was lost, {why}")
        except (OSError, EOFError) as error:
            if late.is_set():
                raise PlayError(f"{host.name}, {why}: not done within {limit_s:g} s") from None
            raise SshError(f"the connection to {host.name} was lost, {why}: {error}") from None
        finally:
            timer.cancel()
            channel.close()

    @staticmethod
    def _is_up(channel: paramiko.Channel) -> bool:
        return channel.exit_status_ready() and channel.exit_status != -1

    def _channel(self, host: Host, command: str) -> paramiko.Channel:
        from paramiko import SSHException

        connection = self.connections.to(host)
        transport = connection.transport
        assert transport is not None
        try:
            channel: paramiko.Channel = transport.open_session(timeout=self._timeouts.login_s)
            channel.exec_command(command)
        except (SSHException, OSError, EOFError) as error:
            self.connections.drop(host)
            raise SshError(f"{host.name} does not take a command: {error}") from None
        return channel


class _Sender(threading.Thread):
    """Feeds a command while its output is read: it may say why it does not want more."""

    def __init__(self, channel: paramiko.Channel, data: Sequence[memoryview]) -> None:
        super().__init__(name="sender", daemon=True)
        self._channel = channel
        self._data = data
        if data:
            self.start()
        else:
            channel.shutdown_write()

    def run(self) -> None:
        try:
            for view in self._data:
                sent = 0
                while sent < len(view):
                    sent += self._channel.send(bytes(view[sent : sent + BLOCK_BYTES]))
            self._channel.shutdown_write()
        except OSError:
            # The command has ended early; its last words tell why.
            return

    def join(self, timeout: float | None = None) -> None:
        if self._data:
            super().join(timeout)


def _blocks(receive: Callable[[int], bytes]) -> Iterator[bytes]:
    while block := receive(BLOCK_BYTES):
        yield block


def _unpack(archive: tarfile.TarFile, into: Path) -> None:
    """Plain files and folders below `into`, whatever the archive says."""
    root = into.resolve()
    for member in archive:
        path = (root / member.name).resolve()
        if not path.is_relative_to(root):
            raise tarfile.TarError(f"{member.name} does not belong there")
        if member.isdir():
            path.mkdir(parents=True, exist_ok=True)
        elif member.isfile():
            path.parent.mkdir(parents=True, exist_ok=True)
            source = archive.extractfile(member)
            assert source is not None
            with path.open("wb") as file:
                while block := source.read(1 << 18):
                    file.write(block)


def in_words(step: Step, about: str = "") -> str:
    shown = step.shows if isinstance(step, Run) and step.shows else step.command
    return f"{shown}    # {about + ': ' if about else ''}{step.why}"


def words(playbook: Playbook[Made], about: str = "") -> tuple[list[str], Made]:
    """For a dry run: every command, without doing any."""
    lines = []
    try:
        step = next(playbook)
        while True:
            lines.append(in_words(step, about))
            step = playbook.send(CommandResult(out=step.answers if isinstance(step, Run) else ""))
    except StopIteration as end:
        return lines, end.value
