"""Looking at a running overlay from inside an event loop, and waiting until what is expected shows."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from client import ClientError
from client.asking.monitor import fetch_status
from tests.support.brokers import Link, Overlay, brokers
from tests.support.cuttable import Cuttable

T = TypeVar("T")
DEADLINE_S = 15.0
POLL_S = 0.01
LINE = [("b1", "b2"), ("b2", "b3")]


P = ParamSpec("P")


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that is a coroutine."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


async def eventually(what: str, look: Callable[[], Awaitable[T]], deadline_s: float = DEADLINE_S) -> T:
    """The first true answer of `look`; fails with `what` when there is none in time."""
    deadline = time.monotonic() + deadline_s
    while not (answer := await look()):
        assert time.monotonic() < deadline, f"not within {deadline_s:g} s: {what}"
        await asyncio.sleep(POLL_S)
    return answer


async def link(address: str, hop: str) -> dict[str, Any]:
    """What a broker says of one of its peers; empty if it has none of that name."""
    status = await fetch_status(address)
    return next((row for row in status["links"] if row["hop"] == hop), {})


async def link_becomes(address: str, hop: str, **expected: Any) -> dict[str, Any]:
    async def look() -> dict[str, Any]:
        row = await link(address, hop)
        return row if row and expected.items() <= row.items() else {}

    return await eventually(f"{hop} is {expected} at {address}", look)


async def link_vanishes(address: str, hop: str) -> None:
    async def look() -> bool:
        return not await link(address, hop)

    await eventually(f"{hop} is gone from {address}", look)


async def traces(overlay: Overlay, client: str) -> list[str]:
    """Every line about a client in the tables of every broker."""
    found = []
    for name in overlay.names:
        tables = (await fetch_status(overlay.address(name), dump=True))["tables"]
        found += [
            f"{name} {kind}" for kind, rows in tables.items() for row in rows if row["client"] == client
        ]
    return found


async def is_forgotten(overlay: Overlay, client: str) -> None:
    async def look() -> bool:
        return not await traces(overlay, client)

    await eventually(f"no broker knows {client}", look)


async def logged(overlay: Overlay, name: str, event: str, **expected: Any) -> dict[str, Any]:
    async def look() -> dict[str, Any]:
        lines = overlay.log(name, event)
        return next((line for line in lines if expected.items() <= line.items()), {})

    return await eventually(f"{name} logs {event} {expected}", look)


async def noted(log_file: Path, event: str, text: str) -> bool:
    """A client's log has such an event, with this in its reason."""
    return any(line["event"] == event and text in line.get("reason", "") for line in lines_of(log_file))


def lines_of(log_file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log_file.read_text().splitlines()]


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


@asynccontextmanager
async def cuttable_overlay(
    folder: Path,
    links: Iterable[Link] = LINE,
    rewrite: Callable[[str, str], str] = lambda _, text: text,
    **settings: Any,
) -> AsyncIterator[tuple[Overlay, dict[Link, Cuttable]]]:
    """An overlay whose links between brokers can be cut; all of them are up.

    `rewrite` makes what is in a broker's configuration file of its name and of what is there.
    """
    links = list(links)
    with brokers(folder, links, start=False, **settings) as overlay:
        async with AsyncExitStack() as stack:
            proxies = {}
            for dialler, other in links:
                proxy = await stack.enter_async_context(Cuttable(overlay.address(other)))
                proxies[dialler, other] = proxy
                file = folder / f"{dialler}.toml"
                file.write_text(file.read_text().replace(overlay.address(other), proxy.address))
            for name in overlay.names:
                file = folder / f"{name}.toml"
                file.write_text(rewrite(name, file.read_text()))
            await start(overlay)
            yield overlay, proxies


@asynccontextmanager
async def running(folder: Path, links: Iterable[Link] = (), **settings: Any) -> AsyncIterator[Overlay]:
    """An overlay, all of it up; one broker, b1, if there are no links."""
    with brokers(folder, links, start=False, **settings) as overlay:
        await start(overlay)
        yield overlay


async def start(overlay: Overlay) -> None:
    for name in overlay.names:
        overlay.start(name)
    for name in overlay.names:
        await eventually(f"{name} knows all", lambda name=name: _knows_all(overlay, name))  # type: ignore[misc]


async def _knows_all(overlay: Overlay, name: str) -> bool:
    assert overlay.is_alive(name), f"{name} ended: {overlay.errors(name)}"
    try:
        status = await fetch_status(overlay.address(name))
    except ClientError:
        return False
    return set(status["overlay"]) == {*overlay.names} - {name}
