"""`python -m broker --config node.toml [--data DIR]`: one broker process.

Exit codes: 0 stopped as asked; 2 the configuration (of this broker or of the overlay) is wrong; 4 the
machine or the overlay does not let it run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import uvloop

from broker.config import ConfigError, NodeConfig, parse
from broker.journal.failures import FolderRefused
from broker.node.garbage import collect_rarely
from broker.node.log import JsonLog
from broker.protocol.events import FATAL
from broker.serving.server import Server

STDOUT, STDERR = 1, 2


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m broker", description="One broker of an overlay.")
    parser.add_argument("--config", required=True, type=Path, metavar="FILE", help="its settings, as TOML")
    parser.add_argument(
        "--data",
        default="",
        metavar="DIR",
        help="its data folder; durable = fsync, unless FILE says otherwise",
    )
    options = parser.parse_args(arguments)
    _fill_standard_files()
    try:
        config = parse(_read(options.config), options.config.name, options.data)
    except ConfigError as error:
        _tell(str(error))
        return 2
    collect_rarely()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config))


async def _serve(config: NodeConfig) -> int:
    log = JsonLog(STDOUT, config.id, config.log_bytes_max)
    try:
        server = Server(config, log)
    except FolderRefused as error:
        _tell(str(error))
        return 2
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stop)
    exit_code, reason = await server.run()
    if exit_code:
        log.log(FATAL, reason=reason, exit_code=exit_code)
        _tell(reason)
    return exit_code


def _fill_standard_files() -> None:
    """Without a stdout its number would go to the first socket, and the log to whoever is connected to it."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        pass
    os.close(fd)


def _tell(sentence: str) -> None:
    """On stderr, if anybody reads it; the exit code does not depend on that."""
    with contextlib.suppress(OSError):
        os.write(STDERR, f"{sentence}\n".encode(errors="backslashreplace"))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None


if __name__ == "__main__":
    sys.exit(main())
