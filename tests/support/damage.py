"""What can happen to the folder of a repetition after it was finished, and the verdict that is due then."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Damage = Callable[[Path], None]


def edit(path: Path, change: Callable[[list[str]], list[str]]) -> None:
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))


def _transactions(change: Callable[[list[str]], list[str]]) -> Damage:
    return lambda part: edit(part / "transactions.jsonl", change)


def _coordinator(change: Callable[[list[str]], list[str]]) -> Damage:
    return lambda part: edit(part / "history" / "E.jsonl", change)


def told(**fields: Any) -> Damage:
    """Every transaction is told otherwise."""
    return _transactions(lambda lines: [json.dumps(json.loads(line) | fields) + "\n" for line in lines])


def _spoil(path: str, text: bytes) -> Damage:
    return lambda part: _write(part / path, text)


def _write(path: Path, text: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text)


def _remove(path: str) -> Damage:
    return lambda part: (part / path).unlink()


NOTHING: Damage = lambda part: None  # noqa: E731 - one of many
UNKNOWN: Mapping[str, Damage] = {
    "half the lines of transactions": _transactions(lambda lines: lines[::2]),
    "every line of transactions twice": _transactions(lambda lines: [x for line in lines for x in (line, line)]),
    "one line of transactions in place of another": _transactions(lambda lines: [*lines[:-1], lines[0]]),
    "a line of transactions that is torn": _transactions(lambda lines: [lines[0][:30] + "\n", *lines[1:]]),
    "transactions whose last line has no end": _transactions(lambda lines: [*lines[:-1], lines[-1].rstrip()]),
    "a coordinator's history whose last line has no end": _coordinator(
        lambda lines: [*lines[:-1], lines[-1].rstrip()]
    ),
    "a line of nothing behind the transactions": _transactions(lambda lines: [*lines, "}{\n"]),
    "no transactions": _remove("transactions.jsonl"),
    "a coordinator's history of garbage": _spoil("history/E.jsonl", bytes(range(256)) * 40),
    "a coordinator's history of lines of garbage": _coordinator(lambda lines: ["garbage\n"] * len(lines)),
    "a coordinator's history that is empty": _coordinator(lambda lines: []),
    "no history of a coordinator": _remove("history/E.jsonl"),
    "half a coordinator's history": _coordinator(lambda lines: lines[: len(lines) // 2]),
    "every line of a coordinator's history twice": _coordinator(lambda lines: [x for y in lines for x in (y, y)]),
    "a line of garbage behind a coordinator's history": _coordinator(lambda lines: [*lines, "garbage\n"]),
    "a coordinator's history that begins as another's": _coordinator(lambda lines: ["{}\n", *lines[1:]]),
    "an agent's history without a line": lambda part: edit(
        part / "history" / "A2.jsonl", lambda lines: lines[:2] + lines[3:]
    ),
    "fields that are none": _coordinator(
        lambda lines: [json.dumps(json.loads(line) | {"fields": {}}) + "\n" for line in lines]
    ),
    "an agent's history that is cut off": lambda part: edit(
        part / "history" / "A1.jsonl", lambda lines: lines[:-3]
    ),
    "tables of garbage": _spoil("tables/b1.json", b"{"),
}  # fmt: skip
"""Nothing can be said any more."""
OF_MEASUREMENTS: Mapping[str, Damage] = {
    "half the windows": lambda part: edit(part / "rates.jsonl", lambda lines: lines[::2]),
    "every window twice": lambda part: edit(
        part / "rates.jsonl", lambda lines: [x for y in lines for x in (y, y)]
    ),
    "no latencies": _remove("latencies.jsonl"),
    "a latency whose line has no end": lambda part: edit(
        part / "latencies.jsonl", lambda lines: [*lines[:-1], lines[-1].rstrip()]
    ),
    "a torn latency": lambda part: edit(part / "latencies.jsonl", lambda lines: [*lines[:-1], lines[-1][:9]]),
}
"""Of a cell of disruption: nothing can be said any more."""
INVALID: Mapping[str, Damage] = {
    "nothing committed": told(outcome="aborted", reason="it is always so"),
    "half the transactions were wrong": _transactions(
        lambda lines: [json.dumps(json.loads(line) | {"correct": bool(n % 2)}) + "\n" for n, line in enumerate(lines)]
    ),
}  # fmt: skip
"""This is no damage, but what happened."""
