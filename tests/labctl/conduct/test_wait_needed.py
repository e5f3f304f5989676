"""How long transactions needed, from histories that are made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from broker.protocol.events import ISSUED, PLACED
from labctl.conduct.wait_needed import TimedLine, needs_ms, read


def issued(time: float, instance: str, process: str = "p1") -> TimedLine:
    return TimedLine(ISSUED, time, {"kind": "pub", "event": {"process": process, "instance": instance}})


def placed(time: float, kind: str, instance: str, process: str = "p1") -> TimedLine:
    names, values = ["instance", "process"], [instance, process]
    return TimedLine(PLACED, time, {"kind": kind, "client": "A1", "filter": [names, values]})


def rounded(values: list[float]) -> list[float]:
    return [round(value, 6) for value in values]


def test_a_transaction_needs_until_the_later_of_both_operations_is_there() -> None:
    coordinator = [issued(1.0, "x1"), issued(1.2, "x1"), issued(2.0, "x2")]
    broker = [
        placed(1.020, "sub", "x1"),
        placed(1.030, "usub", "x1"),
        placed(2.050, "usub", "x2"),
        placed(2.060, "sub", "x2"),
    ]
    assert rounded(needs_ms(coordinator, broker)) == [30.0, 60.0]


def test_one_that_never_took_effect_tells_nothing() -> None:
    assert needs_ms([issued(1.0, "x1")], [placed(1.1, "sub", "x1")]) == []


def test_copies_are_told_apart_by_their_process() -> None:
    broker = [placed(9.0, "sub", "x1", "p1-1"), placed(9.0, "usub", "x1", "p1-1")]
    assert needs_ms([issued(1.0, "x1", "p1-0")], broker) == []


def test_a_transaction_about_two_instances_needs_what_the_slower_needs() -> None:
    coordinator = [issued(1.0, "x1.A1"), issued(1.01, "x1.A2")]
    broker = [placed(1.0 + 0.01 * n, kind, f"x1.A{n}") for n in (1, 2) for kind in ("sub", "usub")]
    assert rounded(needs_ms(coordinator, broker)) == [20.0]


def test_what_is_about_no_instance_is_left_out() -> None:
    lines: list[Any] = [
        TimedLine(ISSUED, 1.0, {"kind": "adv", "filter": [["process"], ["p1"]]}),
        issued(1.0, "x"),
    ]
    assert needs_ms(lines, []) == []


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "b1.jsonl"
    whole = msgspec.json.encode({"node": "b1", "number": 1, "time": 1.0, "name": "history", "fields": {}})
    path.write_bytes(whole + b'\n{"node": "b')
    assert [line.name for line in read(path)] == ["history"]
