"""A pure state machine as bytes and back, for snapshots: whatever it consists of, with what is shared in it.

By pickle, because a machine is a graph of many small classes, of which a hand-written form would be a second description
to be kept true. Three things make that safe enough: a state is read only by the version that wrote it (the folder's
identity says which), it stands in a folder that only its owner can open, with a checksum, and nothing is loaded but
classes and functions of the rooms that are named.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from broker.journal.failures import FolderRefused

PLAIN = {
    "builtins": {"getattr", "set", "frozenset", "list", "dict", "tuple", "object", "bytearray"},
    "array": {"array", "_array_reconstructor"},
    "collections": {"deque", "defaultdict", "OrderedDict", "Counter"},
    "functools": {"partial"},
    "operator": {"itemgetter", "attrgetter"},
    "copyreg": {"_reconstructor", "__newobj__"},
}
"""By module, what a state may consist of besides classes and functions of the rooms."""


def freeze(state: object) -> bytes:
    return pickle.dumps(state, protocol=5)


def thaw(data: bytes, rooms: Sequence[str]) -> Any:
    """The state, if it consists of nothing else than these packages define."""
    try:
        return _Reader(_Bytes(data), tuple(f"{room}." for room in rooms)).load()
    except (pickle.UnpicklingError, AttributeError, EOFError, ImportError, IndexError, TypeError) as error:
        raise FolderRefused(f"A snapshot cannot be read: {error}.") from error


class _Bytes:
    """Read from the start to the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._offset = 0

    def read(self, size: int, /) -> bytes:
        start, self._offset = self._offset, self._offset + size
        return self._data[start : self._offset]

    def readline(self) -> bytes:
        end = self._data.find(b"\n", self._offset) + 1
        return self.read((end or len(self._data)) - self._offset)


class _Reader(pickle.Unpickler):
    def __init__(self, data: _Bytes, rooms: tuple[str, ...]) -> None:
        super().__init__(data)
        self._rooms = rooms

    def find_class(self, module: str, name: str) -> Any:
        if name in PLAIN.get(module, ()):
            return super().find_class(module, name)
        if f"{module}.".startswith(self._rooms):
            found = super().find_class(module, name)
            if getattr(found, "__module__", "") == module:
                return found
        raise pickle.UnpicklingError(f"{module}.{name} has no place in it")
