"""The one place that knows whether somebody is watching or a program is reading.

With `--json` stdout carries one JSON document and nothing else; all that is said on the way goes to
stderr. On a terminal results are rich tables; otherwise they are aligned lines without colour, bars
or control characters, fit for a log file and for `awk`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

import msgspec

from labctl.exits import LabError

if TYPE_CHECKING:
    from rich.console import Console

Row = Sequence[object]


class Output:
    """Where a command's words and results go."""

    def __init__(self, json: bool = False) -> None:
        self.json = json
        # Looked up now, not at import: tests and callers replace the streams.
        self._results: TextIO = sys.stderr if json else sys.stdout
        self._stdout: TextIO = sys.stdout

    def say(self, text: str) -> None:
        """A line of the result, for people."""
        _write(self._results, text)

    def note(self, text: str) -> None:
        """What is going on; never part of the result."""
        _write(sys.stderr, text)

    def document(self, value: object) -> None:
        """The result, for programs: printed with `--json` only."""
        if self.json:
            encoded = msgspec.json.format(msgspec.json.encode(value), indent=2)
            _write(self._stdout, encoded.decode())

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Row], figures: bool = False) -> None:
        """Columns whose values are all numbers are set flush right; of `figures`, all but the first are."""
        cells = [[_cell(value) for value in row] for row in rows]
        numeric = [_is_numeric(rows, index) or (figures and index > 0) for index in range(len(columns))]
        if is_terminal(self._results):
            _rich_table(_console(self._results), title, columns, cells, numeric)
            return
        self.say(title)
        for line in aligned(columns, cells, numeric):
            self.say(line)

    @contextmanager
    def working(self, text: str) -> Iterator[Callable[[str], None]]:
        """Progress while something takes its time: a spinner on a terminal, notes otherwise."""
        if not is_terminal(sys.stderr):
            self.note(text)
            yield self.note
            return
        with _console(sys.stderr).status(text) as spinner:
            yield spinner.update


def is_terminal(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def print_error(error: LabError | str) -> None:
    """One sentence on stderr, whatever the form of the output."""
    text = f"labctl: {error}"
    if is_terminal(sys.stderr):
        _console(sys.stderr).print(text, style="red", soft_wrap=True)
    else:
        _write(sys.stderr, text)


def aligned(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> list[str]:
    """Header and rows as lines, two spaces between columns."""
    lines = [columns, *rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    return [
        "  ".join(
            cell.rjust(width) if flush else cell.ljust(width)
            for cell, width, flush in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    ]


def byte_size(count: float) -> str:
    """12.3 MB; powers of a thousand."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def _write(stream: TextIO, text: str) -> None:
    stream.write(text + "\n")
    stream.flush()


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) < 10 else f"{value:,.1f}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def _is_numeric(rows: Sequence[Row], index: int) -> bool:
    values = [row[index] for row in rows if row[index] is not None]
    return bool(values) and all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)


def _console(stream: TextIO) -> Console:
    # Rich takes long to load, and most of what programs ask for never needs it.
    from rich.console import Console

    return Console(file=stream, highlight=False, markup=False, emoji=False)


def _rich_table(
    console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]
) -> None:
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold")
    for column, flush in zip(columns, right, strict=True):
        table.add_column(column, justify="right" if flush else "left")
    for row in rows:
        table.add_row(*row)
    console.print(table)
