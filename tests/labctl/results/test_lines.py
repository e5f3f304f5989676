"""Lines of JSON whose writer may have been killed: which of them count, for whoever reads them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from labctl.host import whole_lines
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
    assert list(whole_lines.whole(data)) == list(enumerate(texts, start=1))
    assert whole_lines.end(data) == sum(len(text) + 1 for text in texts)
    assert whole_lines.rest(data) == data[whole_lines.end(data) :]


@pytest.mark.parametrize("rest", [b'{"a":1}', b'{"a'])
def test_a_last_line_without_its_end_is_none_and_of_a_finished_writer_it_is_damage(
    tmp_path: Path, rest: bytes
) -> None:
    path = tmp_path / "b1.jsonl"
    path.write_bytes(b'{"a":0}\n' + rest)
    assert list(lines.read(path, msgspec.json.decode, "line of a log")) == [{"a": 0}]
    assert lines.salvage(path, msgspec.json.decode) == ([{"a": 0}], 1)


def test_a_line_that_counts_and_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "b1.jsonl"
    path.write_bytes(b'{}\n{"a\n{}\n')
    with pytest.raises(ResultProblem, match=r"b1\.jsonl, line 2, is no line of a log"):
        list(lines.read(path, msgspec.json.decode, "line of a log"))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ResultProblem, match=r"b1\.jsonl cannot be read: No such file"):
        list(lines.read(tmp_path / "b1.jsonl", msgspec.json.decode, "line of a log"))
