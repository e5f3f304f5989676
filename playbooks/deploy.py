"""Bring bundles to a host and unpack them: no pip, no compiler, no network there.

A bundle is a compressed archive whose name is the hash of its content. It goes through the standard input of
a small program, which continues a transfer that was cut off, compares the hash, unpacks beside the place and
renames. So a bundle is there whole or not at all, and one that is there is never brought again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from playbooks.prepare import Found
from playbooks.steps import Playbook, PlaybookError, Run, Target, shell

RECEIVE = """
import errno, hashlib, os, shutil, sys, tarfile
bundles = sys.argv[1]

def take(digest, offset, size):
    place = os.path.join(bundles, digest)
    part, fresh = place + ".part", place + ".new"
    with open(part, "ab") as file:
        file.truncate(offset)
        while offset < size:
            block = sys.stdin.buffer.read(min(size - offset, 1 << 18))
            if not block:
                sys.exit("the transfer was cut off; deploy again, and it goes on")
            file.write(block)
            offset += len(block)
    with open(part, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != digest:
        os.unlink(part)
        sys.exit("what arrived has the hash " + found + "; it was thrown away, deploy again")
    shutil.rmtree(fresh, ignore_errors=True)
    with tarfile.open(part, "r:gz") as archive:
        archive.extractall(fresh)
    os.rename(fresh, place)
    os.unlink(part)

try:
    for word in sys.argv[2:]:
        digest, offset, size = word.split(":")
        take(digest, int(offset), int(size))
except OSError as error:
    for name in os.listdir(bundles):
        if name.endswith(".new"):
            shutil.rmtree(os.path.join(bundles, name), ignore_errors=True)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        sys.exit("the disk is full")
    raise
"""


class Bundle(Protocol):
    @property
    def kind(self) -> str: ...
    @property
    def digest(self) -> str: ...
    @property
    def content(self) -> bytes: ...
    @property
    def unpacked_bytes(self) -> int: ...


@dataclass(frozen=True)
class Deployed:
    """A host that has everything."""

    root: str
    paths: tuple[str, ...]
    """Where Python finds what was brought."""
    brought: tuple[str, ...] = ()
    """Kinds of the bundles that were not there before."""


def deploy(target: Target, found: Found, bundles: Sequence[Bundle]) -> Playbook[Deployed]:
    missing = [bundle for bundle in bundles if bundle.digest not in found.present]
    need = sum(len(bundle.content) + bundle.unpacked_bytes for bundle in missing)
    if need > found.free_bytes:
        raise PlaybookError(
            f"the disk of {target.name} is full: {need / 1e6:.1f} MB are needed at {found.root} and "
            f"{found.free_bytes / 1e6:.1f} MB are free; make room there"
        )
    if missing:
        yield from _bring(target, found, missing)
    return Deployed(
        found.root,
        tuple(f"{found.root}/bundles/{bundle.digest}" for bundle in bundles),
        tuple(bundle.kind for bundle in missing),
    )


def _bring(target: Target, found: Found, missing: Sequence[Bundle]) -> Playbook[None]:
    """All in one go, each from where an earlier transfer was cut off."""
    parts = dict(found.parts)
    offsets = {bundle.digest: min(parts.get(bundle.digest, 0), len(bundle.content)) for bundle in missing}
    words = [f"{each.digest}:{offsets[each.digest]}:{len(each.content)}" for each in missing]
    kinds = " and ".join(bundle.kind for bundle in missing)
    sends = tuple(memoryview(bundle.content)[offsets[bundle.digest] :] for bundle in missing)
    where = f"{found.root}/bundles"
    result = yield Run(
        shell([target.python, "-ISc", RECEIVE, where, *words]),
        why=f"bring {kinds}, {sum(map(len, sends)) / 1e6:.1f} MB",
        sends=sends,
        shows=shell([target.python, "-ISc", "...", where, *words]) + " < bundles",
        may_fail=True,
        takes="transfer",
    )
    if result.code:
        raise PlaybookError(f"{target.name} could not take {kinds} at {found.root}: {result.last_words}")
