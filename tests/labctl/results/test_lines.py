"""Lines of JSON whose writer may have been killed: which of them count, for whoever reads them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from labctl.results import lines
from labctl.results.problem import ResultProblem


@pytest.mark.parametrize(
    ("data", "texts"),
    [
        (b"", []),
        (b"{}\n", [b"{}"]),
        (b'{}\n{"a', [b"{}"]),
        (b"{}\n{}", [b"{}"]),
        (b"{", []),
    ],
)
def test_a_line_counts_when_its_end_is_there(data: bytes, texts: list[bytes]) -> None:
    assert list(lines.whole(data)) == list(enumerate(texts, start=1))
    assert lines.end(data) == sum(len(text) + 1 for text in texts)


def test_a_line_that_counts_and_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "b1.jsonl"
    path.write_bytes(b'{}\n{"a\n{}\n')
    with pytest.raises(ResultProblem, match=r"b1\.jsonl, line 2, is no line of a log"):
        list(lines.read(path, msgspec.json.decode, "line of a log"))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ResultProblem, match=r"b1\.jsonl cannot be read: No such file"):
        list(lines.read(tmp_path / "b1.jsonl", msgspec.json.decode, "line of a log"))
