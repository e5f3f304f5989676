"""`python -m labctl.host.agent serve STATE`: starts processes on a host for a labctl that may be elsewhere.

It reads requests and writes answers and news, one JSON object a line, and lives as long as the line to
labctl does: when that ends, however it ends, whatever the agent has started is stopped. What even an agent
that is killed leaves behind is stopped by the next one: everything it starts carries, in its environment, a
random mark that was written to STATE first, and only what carries a recorded mark is ever signalled.

Standard library and a few small modules of labctl only, for it runs on hosts that have nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import select
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from labctl import locks
from labctl.exits import LabError
from labctl.host import disturbances, launcher, machine, ports, processes, whole_lines
from labctl.host.disturbances import Disturbances
from labctl.host.launcher import Launch
from labctl.host.processes import Process

MARK = "LABCTL_MARK"
LINE_BYTES_MAX = 64 << 20
"""The tables of a large broker come as one line."""
STOP_S = 5.0
ECHO_TIMEOUT_S = 5.0


class AgentError(LabError):
    """What was asked for cannot be done on this host."""


class Records:
    """What was started here, by mark and pid, so that it is found again."""

    def __init__(self, state: Path) -> None:
        self._path = state / "processes.jsonl"

    @classmethod
    @contextlib.contextmanager
    def locked(cls, state: Path) -> Iterator[Records]:
        """For the only one that starts processes here."""

        def busy(holder: str) -> AgentError:
            return AgentError(
                f"another labctl runs processes on this host (agent {holder}); try again when it is done"
            )

        with locks.exclusive(state / "lock", 0.0, busy):
            yield cls(state)

    def stop_leftovers(self) -> list[str]:
        """One sentence for each process that was still there."""
        lines = self._lines()
        marks = {str(line["mark"]) for line in lines}
        names = {(line.get("pid"), line.get("started")): line.get("name") for line in lines}
        found = [process for process in processes.find(lambda process: True) if mark_of(process.pid) in marks]
        how = processes.stop(found, STOP_S)
        self._path.unlink(missing_ok=True)
        return [
            f"{names.get((p.pid, p.started)) or 'process'} of an earlier run (pid {p.pid}) {how[p.pid]}"
            for p in found
        ]

    def add(self, **fields: object) -> None:
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, json.dumps(fields).encode() + b"\n")
        finally:
            os.close(handle)

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)

    def _lines(self) -> list[dict[str, Any]]:
        try:
            texts = list(whole_lines.whole(self._path.read_bytes()))
        except FileNotFoundError:
            return []
        lines = []
        for _, text in texts:
            with contextlib.suppress(ValueError):  # of a disk that was full
                lines.append(json.loads(text))
        return lines


def mark_of(pid: int) -> str | None:
    """The mark in a process's environment; None for a stranger, and where we may not look."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:
        return None
    wanted = f"{MARK}=".encode()
    return next((v.removeprefix(wanted).decode() for v in variables if v.startswith(wanted)), None)


class Child(disturbances.DisturbedProcess):
    """A process that we have started, and what has to be known about its end."""

    def __init__(
        self, name: str, process: asyncio.subprocess.Process, log: Path, request: dict[str, Any]
    ) -> None:
        super().__init__(name, process)
        self.log = log
        """Of its errors."""
        self.request = request
        """By which it was started."""
        self.seen = processes.look(process.pid)


class Agent:
    def __init__(self, records: Records, out: Callable[[dict[str, Any]], None]) -> None:
        self._out = out
        self._records = records
        self._mark = secrets.token_hex(16)
        self._children: dict[str, Child] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._echo: asyncio.Server | None = None
        self._disturbances = Disturbances(self._child, self._start_again, out)
        self.stays = True
        """False when what runs shall outlive us."""

    def hello(self) -> None:
        left = self._records.stop_leftovers()
        self._records.add(mark=self._mark)
        self._out({"hello": os.getpid(), "left": left})

    async def take(self, request: dict[str, Any]) -> None:
        number = request.pop("id", None)
        try:
            do = getattr(self, f"do_{request.pop('do', '')}", None)
            if do is None:
                raise AgentError("this agent is of another version of labctl; deploy again")
            answer = await do(**request)
        except (LabError, OSError) as error:
            self._out({"re": number, "error": str(error)})
        else:
            self._out({"re": number, **(answer or {})})

    async def do_begin(self, folder: str, folders: list[str]) -> None:
        for name in folders:
            (Path(folder) / name).mkdir(parents=True, exist_ok=True)

    async def do_write(self, path: str, text: str) -> None:
        _write_file(Path(path), text)

    async def do_ports(self, address: str, count: int) -> dict[str, Any]:
        with ports.reserved(count, address) as free:
            return {"ports": free}

    async def do_start(
        self, name: str, command: list[str], folder: str, out: str | None, err: str, talks: bool
    ) -> dict[str, Any]:
        """`out`: the file of its standard output; None: what it prints is passed on, line by line."""
        base = Path(folder)
        program = Launch(
            command,
            base,
            errors=base / err,
            output=None if out is None else base / out,
            listens=talks,
            variables={MARK: self._mark},
        )
        with program.surroundings() as surroundings:
            process = await asyncio.create_subprocess_exec(*command, **surroundings, limit=LINE_BYTES_MAX)
        request = {"name": name, "folder": folder, "out": out, "err": err, "talks": talks}
        child = Child(name, process, program.errors, {**request, "command": command})
        started = child.seen.started if child.seen else None
        self._records.add(mark=self._mark, name=name, pid=process.pid, started=started, folder=folder)
        self._children[name] = child
        self._background(self._follow(child))
        return {"pid": process.pid, "started": started}

    async def _follow(self, child: Child) -> None:
        if child.process.stdout is not None:
            async for line in child.process.stdout:
                self._out({"line": child.name, "text": line.decode(errors="replace").rstrip("\n")})
        code = await child.process.wait()
        if not child.may_end:
            self._out({"ended": child.name, "code": code, "last": launcher.last_words(child.log)})

    def _child(self, name: str) -> Child:
        if name not in self._children:
            raise AgentError(f"{name} was not started on this host")
        return self._children[name]

    async def _start_again(self, name: str, more: list[str]) -> None:
        request = self._children[name].request
        added = [word for word in more if word not in request["command"]]
        await self.do_start(**{**request, "command": [*request["command"], *added]})

    async def do_arm(self, steps: list[dict[str, Any]]) -> None:
        """Faults that are to happen after `do_release`."""
        self._disturbances.arm(steps)

    async def do_release(self) -> dict[str, Any]:
        return {"began_s": self._disturbances.release()}

    async def do_tell(self, name: str, text: str) -> None:
        child = self._children[name]
        assert child.process.stdin is not None
        try:
            child.process.stdin.write(f"{text}\n".encode())
            await child.process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            raise AgentError(f"{name} does not listen any more") from None

    async def do_stop(self) -> dict[str, Any]:
        """Everything that still runs; answers when nothing does, and all news of it has been told."""
        self._disturbances.end()
        running = [c for c in self._children.values() if c.process.returncode is None and c.seen]
        found = {child.seen.pid: child for child in running if child.seen is not None}
        seen: list[Process] = [child.seen for child in running if child.seen is not None]
        how = await asyncio.to_thread(processes.stop, seen, STOP_S)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_S)
        self._children.clear()
        self._records.clear()
        self._records.add(mark=self._mark)
        return {"how": {found[pid].name: text for pid, text in how.items()}}

    async def do_ping(self) -> None:
        """Labctl is there."""

    async def do_leave(self) -> None:
        self._disturbances.end()
        self.stays = False

    async def do_remove(self, path: str) -> None:
        shutil.rmtree(path, ignore_errors=True)

    async def do_facts(self) -> dict[str, Any]:
        return {"facts": machine.host_facts()}

    async def do_cpu(self) -> dict[str, Any]:
        return {"cpu": machine.cpu_time(), "load_average": os.getloadavg()[0]}

    async def do_echo(self, address: str) -> dict[str, Any]:
        """Listens for those who measure how far away this host is."""
        if self._echo is None:
            self._echo = await asyncio.start_server(_echo, address, 0)
        return {"port": self._echo.sockets[0].getsockname()[1]}

    async def do_round_trips(self, targets: dict[str, list[Any]], rounds: int) -> dict[str, Any]:
        def measure() -> dict[str, float | None]:
            return {name: _round_trip_ms(host, port, rounds) for name, (host, port) in targets.items()}

        return {"ms": await asyncio.to_thread(measure)}

    def _background(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def end(self) -> None:
        await self.do_stop()
        self._records.clear()
        if self._echo is not None:
            self._echo.close()


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while block := await reader.read(64):
            writer.write(block)
            await writer.drain()
    writer.close()


def _round_trip_ms(host: str, port: int, rounds: int) -> float | None:
    """The median of so many; None where nothing comes back."""
    took = []
    try:
        with socket.create_connection((host, port), ECHO_TIMEOUT_S) as there:
            there.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(rounds):
                began = time.perf_counter()
                there.sendall(b"?")
                if not there.recv(1):
                    return None
                took.append((time.perf_counter() - began) * 1e3)
    except OSError:
        return None
    return round(statistics.median(took), 4)


def _write_file(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _write_line(message: dict[str, Any]) -> None:
    text = json.dumps(message, separators=(",", ":")).encode() + b"\n"
    # Nobody reads any more when labctl has gone; then there is nobody to tell either.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        while text:
            try:
                text = text[os.write(sys.stdout.fileno(), text) :]
            except (
                BlockingIOError
            ):  # sshd gives one socket for both ways, and the loop reads without blocking
                select.select([], [sys.stdout], [])


async def serve(records: Records, silence_s: float | None) -> int:
    """Until the line ends; also when nothing at all has come for so long: then labctl or the way to it is dead."""
    # What we start inherits that, and is not ended by it before it listens to it.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    agent = Agent(records, _write_line)
    agent.hello()
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    work: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    worker = asyncio.create_task(_in_order(agent, work, reader))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, reader.feed_eof)
    try:
        while agent.stays and (line := await asyncio.wait_for(reader.readline(), silence_s)):
            request = json.loads(line)
            if request["do"] == "ping":  # answered at once, whatever else takes its time
                await agent.take(request)
            else:
                work.put_nowait(request)
    except TimeoutError:
        sys.stderr.write(f"no word from labctl for {silence_s:g} s\n")
    finally:
        if not agent.stays:
            # Not in order: that would end all children, too.
            os._exit(0)
        worker.cancel()
        await agent.end()
    with contextlib.suppress(asyncio.CancelledError):
        await worker
    return 0


async def _in_order(agent: Agent, work: asyncio.Queue[dict[str, Any]], reader: asyncio.StreamReader) -> None:
    try:
        while agent.stays:
            await agent.take(await work.get())
    finally:
        reader.feed_eof()


def pack(folder: Path) -> int:
    """The folder as a compressed archive on standard output."""
    import gzip
    import tarfile

    with (
        gzip.GzipFile(fileobj=sys.stdout.buffer, mode="wb", compresslevel=1) as packed,
        tarfile.open(fileobj=packed, mode="w|") as archive,
    ):
        if folder.is_dir():
            archive.add(folder, arcname=".")
    return 0


def main(arguments: list[str]) -> int:
    try:
        match arguments:
            case ["stop", state]:
                with Records.locked(Path(state)) as records:
                    for sentence in records.stop_leftovers():
                        sys.stdout.write(sentence + "\n")
                return 0
            case ["pack", folder]:
                return pack(Path(folder))
            case ["serve", state, *silence_s] if len(silence_s) <= 1:
                with Records.locked(Path(state)) as records:
                    return asyncio.run(serve(records, float(silence_s[0]) if silence_s else None))
    except (LabError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"{error}\n")
        return 4
    sys.stderr.write("python -m labctl.host.agent serve STATE [SILENCE_S] | stop STATE | pack FOLDER\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
