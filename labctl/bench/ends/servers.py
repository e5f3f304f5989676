"""Brokers of others as processes of a benchmark: found on this machine, on free ports of loopback, ended with us."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from labctl import workers
from labctl.host.ports import reserved
from labctl.workers import BenchError

LISTENS_S_MAX = 10.0


def find(program: str) -> str | None:
    """Beside our Python, where a wheel puts it, before any other."""
    own = str(Path(sys.executable).parent / program)
    return shutil.which(own) or shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")


@contextlib.contextmanager
def running(
    name: str,
    command: Sequence[str],
    port: int,
    environment: Mapping[str, str] | None = None,
    listens_s_max: float = LISTENS_S_MAX,
) -> Iterator[None]:
    """From when it listens on this port to the end of the block."""
    silent = subprocess.DEVNULL
    with workers.running(command, environment, stdout=silent, stderr=silent) as process:
        _wait_until_listening(name, process, port, listens_s_max)
        yield


def _wait_until_listening(name: str, process: subprocess.Popen[bytes], port: int, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise BenchError(f"{name} did not listen on port {port} within {limit_s:g} s")


def free_ports(count: int) -> list[int]:
    with reserved(count, "127.0.0.1") as ports:
        return list(ports)
