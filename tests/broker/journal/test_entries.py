"""Entries to bytes and back; what a crash may leave of a write is cut, and what was acknowledged is not."""

from __future__ import annotations

import time
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.journal import entries
from broker.journal.entries import SEGMENT, SNAPSHOT, Header, Scan
from broker.journal.failures import Damaged, FolderRefused

FILE = "data/segment-00000007"
FIRST = 100
HEADER, SEED = entries.encode_header(SEGMENT, b"b1 of an overlay", 7, FIRST)

Batches = list[list[bytes]]
"""The entries that were written together, and synced before the next were."""

BATCHES: Batches = [[b"one", b""], [b"three"], [b"\0" * 40, b"five", b"six" * 20]]
batches_of_any_kind = st.lists(st.lists(st.binary(max_size=80), min_size=1, max_size=4), max_size=4)


def segment(batches: Batches, header: bytes = HEADER, seed: int = SEED) -> bytes:
    data, number = header, FIRST
    for batch in batches:
        acknowledged = number - 1
        for payload in batch:
            data += entries.encode(number, [payload], seed, number - acknowledged) + payload
            number += 1
    return data


def scan(data: bytes, is_last: bool = True) -> Scan:
    return entries.scan(FILE, data, entries.decode_header(FILE, data, SEGMENT), is_last)


def flat(batches: Batches) -> list[bytes]:
    return [payload for batch in batches for payload in batch]


def places(batches: Batches) -> list[int]:
    """Where each entry begins, and the end."""
    places = [len(HEADER)]
    for payload in flat(batches):
        places.append(places[-1] + entries.RECORD_HEADER_BYTES + len(payload))
    return places


@given(batches_of_any_kind, st.booleans())
def test_what_was_written_is_read(batches: Batches, is_last: bool) -> None:
    data = segment(batches)
    assert scan(data, is_last) == (flat(batches), len(data), False)


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_an_entry_may_come_in_pieces(pieces: list[bytes]) -> None:
    assert entries.encode(3, pieces, SEED) == entries.encode(3, [b"".join(pieces)], SEED)


def test_an_entry_that_is_too_long_is_refused_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(entries, "ENTRY_BYTES_MAX", 10)
    with pytest.raises(ValueError, match="an entry of 12 bytes is too long for the journal: at most 10"):
        entries.encode(1, [b"123456", b"123456"], SEED)


@pytest.mark.parametrize("size", range(len(HEADER), len(segment(BATCHES)) + 1))
def test_a_tail_torn_at_any_byte_is_cut_behind_the_last_whole_entry(size: int) -> None:
    whole = [place for place in places(BATCHES) if place <= size]
    found = scan(segment(BATCHES)[:size])
    assert found == (flat(BATCHES)[: len(whole) - 1], whole[-1], size > whole[-1])


@given(batches_of_any_kind, st.data())
def test_what_a_crash_leaves_of_the_last_write_is_cut(batches: Batches, data: st.DataObject) -> None:
    """Whatever it is: the end without the beginning, zeroes, something that stood there before."""
    synced, whole = segment(batches[:-1]), segment(batches)
    size = data.draw(st.integers(len(synced), len(whole)), "size")
    start = data.draw(st.integers(len(synced), size), "start of what is missing")
    end = data.draw(st.integers(start, size), "end of what is missing")
    rubbish = data.draw(st.sampled_from([bytes(end - start), b"\xa5" * (end - start)]), "in its place")
    found = scan(whole[:start] + rubbish + whole[end:size])
    certain = len(flat(batches[:-1]))
    assert found.entries[:certain] == flat(batches[:-1])
    assert found.entries == flat(batches)[: len(found.entries)]
    assert found.end == places(batches)[len(found.entries)]


def test_zeroes_are_no_entries() -> None:
    assert scan(HEADER + bytes(4096)) == ([], len(HEADER), True)
    assert scan(segment(BATCHES) + bytes(24)) == (flat(BATCHES), len(segment(BATCHES)), True)


@pytest.mark.parametrize("offset", range(len(HEADER), places(BATCHES)[3]))
def test_a_changed_byte_in_what_was_acknowledged_is_damage(offset: int) -> None:
    data = bytearray(segment(BATCHES))
    data[offset] ^= 0x40
    broken = max(i for i, place in enumerate(places(BATCHES)) if place <= offset)
    with pytest.raises(Damaged) as caught:
        scan(bytes(data))
    assert (caught.value.file, caught.value.offset) == (FILE, places(BATCHES)[broken])
    assert str(caught.value).startswith(
        f"{FILE} is damaged at byte {places(BATCHES)[broken]}: entry {FIRST + broken} is broken, and entry"
    )


@pytest.mark.parametrize("offset", range(places(BATCHES)[3], places(BATCHES)[6]))
def test_a_changed_byte_in_the_last_write_may_be_a_torn_one(offset: int) -> None:
    data = bytearray(segment(BATCHES))
    data[offset] ^= 0x40
    broken = max(i for i, place in enumerate(places(BATCHES)) if place <= offset)
    assert scan(bytes(data)) == (flat(BATCHES)[:broken], places(BATCHES)[broken], True)


def test_the_number_and_the_distance_are_checked_as_the_payload_is() -> None:
    record = entries.encode(FIRST, [b"x"], SEED) + b"x"
    for offset in range(len(record)):
        changed = bytearray(record)
        changed[offset] ^= 1
        assert scan(HEADER + bytes(changed)).entries == []


@pytest.mark.parametrize("size", range(len(HEADER), len(segment(BATCHES))))
def test_only_the_last_segment_may_be_torn(size: int) -> None:
    data = segment(BATCHES)[:size]
    if size in places(BATCHES):  # it is the next segment that does not fit then: the folder sees to that
        assert not scan(data, is_last=False).is_torn
        return
    with pytest.raises(Damaged, match="there are later files") as caught:
        scan(data, is_last=False)
    assert caught.value.offset == max(place for place in places(BATCHES) if place < size)


@pytest.mark.parametrize(("start", "end"), [(0, 1), (1, 2), (2, 3), (0, 5)])
def test_an_entry_that_was_taken_out_is_missed(start: int, end: int) -> None:
    data, at = segment(BATCHES), places(BATCHES)
    with pytest.raises(
        Damaged, match=f"entry {FIRST + start} was due, and here is entry {FIRST + end}"
    ) as caught:
        scan(data[: at[start]] + data[at[end] :])
    assert caught.value.offset == at[start]


def test_an_entry_that_stands_there_twice_is_damage() -> None:
    data, at = segment(BATCHES), places(BATCHES)
    with pytest.raises(Damaged, match=f"entry {FIRST + 2} was due, and here is entry {FIRST + 1}"):
        scan(data[: at[2]] + data[at[1] :])


def test_entries_of_another_file_never_pass() -> None:
    for other in ((b"b2 of an overlay", 7, FIRST), (b"b1 of an overlay", 8, FIRST)):
        header, seed = entries.encode_header(SEGMENT, *other)
        foreign = segment(BATCHES, header, seed)[len(header) :]
        assert scan(HEADER + foreign) == ([], len(HEADER), True)


@pytest.mark.parametrize("kind", ["zeroes", "random", "looks like entries"])
def test_a_long_broken_tail_is_searched_quickly(kind: str) -> None:
    size = 32 << 20
    tail = {
        "zeroes": lambda: bytes(size),
        "random": lambda: Random(1).randbytes(size),
        "looks like entries": lambda: (
            (entries.encode(FIRST + 1, [b"y"], SEED) + b"x" * (1 << 14)) * (size >> 14)
        ),
    }[kind]()
    start = time.process_time()
    assert scan(segment(BATCHES[:1]) + tail).is_torn
    assert time.process_time() - start < 2


def test_the_search_gives_up_and_refuses_where_everything_looks_like_an_entry() -> None:
    record = entries.encode(FIRST + 3, [bytes(1 << 20)], SEED)
    start = time.process_time()
    with pytest.raises(Damaged, match="entry 102 is broken, and too much behind it looks like entries"):
        scan(segment(BATCHES[:1]) + b"broken" + record * (1 << 16))
    assert time.process_time() - start < 2


def test_a_header_says_whose_it_is() -> None:
    found = entries.decode_header(FILE, HEADER + b"behind it", SEGMENT)
    assert found == Header(SEGMENT, b"b1 of an overlay", 7, FIRST, SEED, len(HEADER))


@pytest.mark.parametrize("offset", range(len(HEADER)))
def test_a_changed_or_torn_header_is_refused(offset: int) -> None:
    changed = bytearray(HEADER)
    changed[offset] ^= 1
    for data in (bytes(changed), HEADER[:offset]):
        with pytest.raises(FolderRefused, match=FILE):
            entries.decode_header(FILE, data, SEGMENT)


def test_a_file_of_another_version_is_refused_with_what_to_do() -> None:
    changed = bytearray(HEADER)
    changed[8] = 9
    with pytest.raises(FolderRefused) as caught:
        entries.decode_header(FILE, bytes(changed), SEGMENT)
    assert str(caught.value) == (
        f"{FILE} is of version 9 of the journal's format, and this program knows version 1: start the program that"
        " has written it"
    )


def test_a_snapshot_is_no_segment() -> None:
    data = b"".join(entries.encode_snapshot(b"b1", 3, FIRST, [b"state"]))
    with pytest.raises(Damaged, match="is damaged at byte 0: it does not begin as a segment does"):
        entries.decode_header(FILE, data, SEGMENT)


@given(st.lists(st.binary(max_size=30), max_size=5))
def test_a_snapshot_is_read_as_it_was_written(pieces: list[bytes]) -> None:
    data = b"".join(entries.encode_snapshot(b"b1", 3, FIRST, pieces))
    header = entries.decode_header(FILE, data, SNAPSHOT)
    assert (header.identity, header.number, header.first) == (b"b1", 3, FIRST)
    assert entries.decode_snapshot(FILE, data, header) == b"".join(pieces)


def test_a_snapshot_that_is_changed_or_cut_anywhere_is_damaged() -> None:
    data = b"".join(entries.encode_snapshot(b"b1", 3, FIRST, [b"the state", bytes(20)]))
    header = entries.decode_header(FILE, data, SNAPSHOT)
    for offset in range(header.size, len(data)):
        changed = bytearray(data)
        changed[offset] ^= 1
        for broken in (bytes(changed), data[:offset], data + data[offset:]):
            with pytest.raises(Damaged) as caught:
                entries.decode_snapshot(FILE, broken, header)
            assert caught.value.offset == header.size
