"""Whose data folder it is, and that it is no copy.

A file `identity` says so, in text that people can read. It appears last when a folder is made: without it nobody has
been told of anything in there. It holds its own inode, which stays the same when the folder is moved and is another
in every copy. Two that went on from the same state would contradict each other, so a copy is refused until somebody
takes the line with the inode out.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from broker.journal.contents import IDENTITY, LOCK, UNFINISHED
from broker.journal.failures import FolderRefused
from broker.journal.files import Disk, Lock, LockedError


class Identity(Struct, frozen=True):
    kind: str
    """Of what: a broker, ..."""
    name: str
    overlay: str
    version: int
    """Of the format in which the state is written in entries and snapshots."""


class FolderOwner(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The content of the file."""

    inode: int | None = None
    kind: str = ""
    name: str = ""
    overlay: str = ""
    version: int = 0
    life: int = -1

    @property
    def identity(self) -> Identity:
        return Identity(self.kind, self.name, self.overlay, self.version)

    @property
    def in_files(self) -> bytes:
        """What the header of each file says of whose it is."""
        return msgspec.msgpack.encode((self.kind, self.name, self.overlay, self.version, self.life))


def make_owner(identity: Identity, life: int) -> FolderOwner:
    return FolderOwner(None, identity.kind, identity.name, identity.overlay, identity.version, life)


def read_owner(disk: Disk, path: str, identity: Identity) -> FolderOwner | None:
    """Who owns the folder; None if nobody does yet. Refuses a folder of somebody else, and one that is a copy."""
    file = f"{path}/{IDENTITY}"
    try:
        text = disk.read(file)
    except FileNotFoundError:
        return None
    try:
        owner = msgspec.json.decode(text, type=FolderOwner)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FolderRefused(
            f"{file} does not say whose data folder this is ({error}): bring it back from a copy"
        ) from None
    if (owner.kind, owner.name, owner.overlay) != (identity.kind, identity.name, identity.overlay):
        raise FolderRefused(
            f"the data folder {path} belongs to {_who(owner.identity)}, not to {_who(identity)}: name another folder"
        )
    if owner.version != identity.version:
        raise FolderRefused(
            f"the data folder {path} holds a state of version {owner.version}, and this program knows version"
            f" {identity.version}: start the program that has written it"
        )
    if owner.inode not in {None, disk.status(file).inode}:
        raise FolderRefused(
            f"the data folder {path} is a copy, and it and the original must not both go on from the same state: if the"
            f' original will never be used again, take the line "inode" out of {file} and start again'
        )
    return owner


def write_owner(disk: Disk, path: str, owner: FolderOwner) -> None:
    """Make the folder theirs; afterwards this is certain to survive."""
    unfinished = f"{path}/{IDENTITY}{UNFINISHED}"
    file = disk.create(unfinished)
    try:
        owner = msgspec.structs.replace(owner, inode=disk.status(unfinished).inode)
        file.write([msgspec.json.format(msgspec.json.encode(owner), indent=2) + b"\n"])
        file.sync()
    finally:
        file.close()
    disk.rename(unfinished, f"{path}/{IDENTITY}")
    disk.sync_folder(path)


def hold(disk: Disk, path: str) -> Lock:
    try:
        return disk.lock(f"{path}/{LOCK}")
    except LockedError as error:
        raise FolderRefused(
            f"the data folder {path} is in use by process {error.holder}: stop it, or name another folder"
        ) from None


def _who(identity: Identity) -> str:
    return f"{identity.kind} {identity.name} of overlay {identity.overlay}"
