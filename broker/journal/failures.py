"""What is wrong with a data folder, or has gone wrong with its disk, in sentences."""

from __future__ import annotations

import errno


class FolderRefused(Exception):
    """A data folder that cannot be used as it is; nothing in it was changed."""


class Damaged(FolderRefused):
    """A file does not hold what was written to it, and it is no write that a crash has torn."""

    def __init__(self, file: str, offset: int, reason: str) -> None:
        super().__init__(
            f"{file} is damaged at byte {offset}: {reason}; bring the data folder back from a copy, or begin anew"
            " with an empty one"
        )
        self.file = file
        self.offset = offset
        self.reason = reason


class JournalFailed(Exception):
    """The disk took something no more. What is durable by then stays so; nothing else ever will be."""


class SnapshotFailed(Exception):
    """A snapshot could not be written. Without it the journal goes on, and grows."""


def describe(error: OSError) -> str:
    """What the disk said, and what to do."""
    said = error.strerror or str(error)
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return f"the disk is full ({said}): make room, and start again"
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return f"it may not be written ({said}): see to it that it may be, and start again"
    return f"the disk reports an error ({said}): find out what is wrong with it, and start again"
