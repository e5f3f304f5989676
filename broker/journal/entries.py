"""Entries and snapshots to bytes and back: numbers, checksums, torn tails, damage; pure.

    file      header, then records (a segment) or one content and its end (a snapshot)
    header    magic, VERSION, length of the identity, number of the file, first entry, identity, CRC
    record    mark, CRC, number, distance, length, payload
    end       length of the content, CRC

Numbers of entries are consecutive over all segments. The CRC of a file's header begins every other CRC in it and is
the mark of its records, so that neither zeroes nor bytes of another file ever pass for a record.

A record also says how far entries had been acknowledged when it was written: `distance` below its own number. That
tells a torn write from damage. Of a write that was never synced the disk may keep what it likes, the end without the
beginning too, and nobody was told of it: it is cut off. But when a sound record says that the broken one in front of
it had been acknowledged, something is lost that was promised, and the file is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from broker.journal.failures import Damaged, FolderRefused

VERSION = 1
SEGMENT = b"segment\n"
SNAPSHOT = b"snapshot"

ENTRY_BYTES_MAX = 1 << 30

_BEGIN = Struct("<8sIIQQ")
_CRC = Struct("<I")
_NUMBERS = Struct("<QII")
_CHECK = Struct("<II")
_RECORD = Struct("<IIQII")
_END = Struct("<QI")
_CHECKED_FROM = _CHECK.size
RECORD_HEADER_BYTES = _RECORD.size

_SEARCH_MAX = 50
"""So many times what is behind broken bytes may be checked, in all, before the search gives up and refuses."""


class Header(NamedTuple):
    magic: bytes
    identity: bytes
    number: int
    first: int
    """Number of the first entry in this segment, or behind this snapshot."""
    seed: int
    size: int


class Scan(NamedTuple):
    entries: list[bytes]
    end: int
    """Where the next record belongs."""
    is_torn: bool
    """Something is behind the end that a crash has left of a write."""


def encode_header(magic: bytes, identity: bytes, number: int, first: int) -> tuple[bytes, int]:
    """The first bytes of a file, and the seed of all that follows."""
    begin = _BEGIN.pack(magic, VERSION, len(identity), number, first) + identity
    seed = crc32(begin)
    return begin + _CRC.pack(seed), seed or 1


def decode_header(file: str, data: bytes, magic: bytes) -> Header:
    if len(data) < _BEGIN.size or data[: len(magic)] != magic:
        raise Damaged(file, 0, f"it does not begin as a {magic.decode().strip()} does")
    _, version, identity_bytes, number, first = _BEGIN.unpack_from(data)
    if version != VERSION:
        raise FolderRefused(
            f"{file} is of version {version} of the journal's format, and this program knows version {VERSION}:"
            " start the program that has written it"
        )
    end = _BEGIN.size + identity_bytes
    if end + _CRC.size > len(data) or crc32(data[:end]) != _CRC.unpack_from(data, end)[0]:
        raise Damaged(file, 0, "the checksum of its header is wrong")
    seed = _CRC.unpack_from(data, end)[0]
    return Header(magic, data[_BEGIN.size : end], number, first, seed or 1, end + _CRC.size)


def encode(number: int, pieces: Sequence[bytes], seed: int, distance: int = 1) -> bytes:
    """What is written in front of an entry's pieces; all up to `distance` below it have been acknowledged."""
    length = sum(map(len, pieces))
    if length > ENTRY_BYTES_MAX:
        raise ValueError(f"an entry of {length} bytes is too long for the journal: at most {ENTRY_BYTES_MAX}")
    numbers = _NUMBERS.pack(number, distance, length)
    crc = crc32(numbers, seed)
    for piece in pieces:
        crc = crc32(piece, crc)
    return _CHECK.pack(seed, crc) + numbers


def scan(file: str, data: bytes, header: Header, is_last: bool) -> Scan:
    """The entries of a segment. Only the last segment may have a torn end: no other was left before it was synced."""
    view = memoryview(data)
    entries: list[bytes] = []
    number, offset, seed = header.first, header.size, header.seed
    while offset < len(data):
        found = _record(view, offset, seed)
        if found is None:
            behind = _acknowledging(data, offset, number, seed) if is_last else "there are later files"
            if behind is None:
                return Scan(entries, offset, is_torn=True)
            raise Damaged(file, offset, f"entry {number} is broken, and {behind}")
        if found.number != number:
            raise Damaged(file, offset, f"entry {number} was due, and here is entry {found.number}")
        entries.append(data[found.start : found.end])
        number, offset = number + 1, found.end
    return Scan(entries, offset, is_torn=False)


def encode_snapshot(identity: bytes, number: int, first: int, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes of a snapshot's file, one piece after the other; the last piece makes it complete."""
    header, crc = encode_header(SNAPSHOT, identity, number, first)
    yield header
    length = 0
    for piece in pieces:
        length += len(piece)
        crc = crc32(piece, crc)
        yield piece
    yield _END.pack(length, crc)


def decode_snapshot(file: str, data: bytes, header: Header) -> bytes:
    content = memoryview(data)[header.size : -_END.size]
    if len(data) < header.size + _END.size or _END.unpack_from(data, len(data) - _END.size) != (
        len(content),
        crc32(content, header.seed),
    ):
        raise Damaged(file, header.size, "the checksum of the snapshot is wrong")
    return bytes(content)


class _Record(NamedTuple):
    number: int
    acknowledged: int
    start: int
    end: int


def _record(view: memoryview, offset: int, seed: int) -> _Record | None:
    """The sound record at this place, if there is one."""
    if offset + _RECORD.size > len(view):
        return None
    mark, crc, number, distance, length = _RECORD.unpack_from(view, offset)
    start = offset + _RECORD.size
    end = start + length
    if mark != seed or end > len(view) or crc32(view[offset + _CHECKED_FROM : end], seed) != crc:
        return None
    return _Record(number, number - distance, start, end)


def _acknowledging(data: bytes, offset: int, number: int, seed: int) -> str | None:
    """What behind `offset` shows that entry `number` had been acknowledged, if anything does.

    Only where the mark is found is anything looked at, and only where the numbers are possible is a checksum taken.
    """
    view, mark = memoryview(data), _CRC.pack(seed)
    rest = len(data) - offset
    number_max = number + rest // _RECORD.size + 1
    unchecked = rest * _SEARCH_MAX
    while (offset := data.find(mark, offset)) >= 0 and offset + _RECORD.size <= len(data):
        _, _, later, distance, length = _RECORD.unpack_from(view, offset)
        if number <= later - distance < later <= number_max and offset + length < len(data):
            if _record(view, offset, seed) is not None:
                return f"entry {later} behind it is sound"
            unchecked -= length
            if unchecked < 0:
                return "too much behind it looks like entries"
        offset += 1
    return None
