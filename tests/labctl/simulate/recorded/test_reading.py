"""What cannot be replayed is refused, in one sentence that says why and how to record one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from labctl.results.problem import ResultProblem
from labctl.simulate.recorded import reading
from tests.support import recordings
from tests.support.recordings import Line

Change = Callable[[list[Line]], list[Line]]


def changed(name: str, **fields: object) -> Change:
    """The first line of this name says something else."""

    def change(lines: list[Line]) -> list[Line]:
        place = next(place for place, line in enumerate(lines) if line["name"] == name)
        line = lines[place]
        return [*lines[:place], {**line, "fields": {**line["fields"], **fields}}, *lines[place + 1 :]]

    return change


def without(name: str) -> Change:
    return lambda lines: [line for line in lines if line["name"] != name]


def alone(lines: list[Line]) -> list[Line]:
    return changed("made", neighbours=[])(lines)


def test_a_whole_one_is_read(tmp_path: Path) -> None:
    [found] = reading.load(recordings.write(tmp_path, alone(recordings.life())))
    assert (found.node, found.made.incarnation) == ("b1", 7)
    assert [entry.line.name for entry in found.entries][:2] == ["given", "put"]


def test_a_lost_connection_is_no_matter_of_the_core(tmp_path: Path) -> None:
    lines = alone(recordings.life())
    lost = {**lines[3], "name": "lost", "fields": {"link": "broker:b2", "life": 1, "processed": 1}}
    [found] = reading.load(recordings.write(tmp_path, [*lines[:-3], lost, *lines[-3:]]))
    assert [(one.link, one.processed) for one in found.lost] == [("broker:b2", 1)]
    [without] = reading.load(recordings.write(tmp_path / "without", lines))
    assert [entry.what for entry in found.entries] == [entry.what for entry in without.entries]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda lines: recordings.life("transactions"), "detail 'transactions', without what came"),
        (without("made"), "an older broker wrote it"),
        (changed("made", version=1), "a recording of version 1 of protocol 1, and this labctl replays version 2"),
        (changed("made", protocol=9), "of version 2 of protocol 9"),
        (without("closed"), "is cut: it does not end"),
        (changed("given", act="dance"), "is damaged: Invalid enum value 'dance'"),
        (lambda lines: lines, "lacks the history of b2, a neighbour of b1"),
    ],
)  # fmt: skip
def test_another_one_is_refused(tmp_path: Path, change: Change, reason: str) -> None:
    lines = change(recordings.life())
    folder = recordings.write(tmp_path, lines if "lacks" in reason else alone_if_made(lines))
    with pytest.raises(ResultProblem, match=reason) as refused:
        reading.load(folder)
    assert "labctl run experiment NAME --history all" in str(refused.value)


def alone_if_made(lines: list[Line]) -> list[Line]:
    return alone(lines) if any(line["name"] == "made" for line in lines) else lines


def test_a_line_that_is_missing_is_named(tmp_path: Path) -> None:
    folder = recordings.write(tmp_path, alone(recordings.life()))
    file = folder / "b1.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([*lines[:9], *lines[10:]]))
    with pytest.raises(ResultProblem, match="is cut: line 10 is missing, what is there is 11"):
        reading.load(folder)


def test_the_last_line_of_a_file_that_was_torn_does_not_count(tmp_path: Path) -> None:
    folder = recordings.write(tmp_path, alone(recordings.life()))
    file = folder / "b1.jsonl"
    file.write_text(file.read_text()[:-3])
    with pytest.raises(ResultProblem, match="is cut: it does not end"):
        reading.load(folder)


def test_clients_alone_are_no_recording(tmp_path: Path) -> None:
    first = {"time": 0.0, "name": "history", "fields": {"role": "client", "incarnation": 1, "detail": "all"}}
    with pytest.raises(ResultProblem, match="holds no history of a broker"):
        reading.load(recordings.write(tmp_path, [first], "E"))
