"""SSH keys that we make ourselves: one that opens a lab's hosts, and one that proves each host.

A host key is made before its machine is, and given to it, so that the first connection is checked as
strictly as the last. Private keys stay in the lab's folder, readable by its owner only.
"""

from __future__ import annotations

import os
from pathlib import Path

from labctl.testbeds.labs.lab import Lab
from labctl.testbeds.testbed import Bastion


def ensure_pair(path: Path, comment: str) -> str:
    """Make an Ed25519 key at `path` unless there is one; returns the public line."""
    # Loading the library takes long, and most commands never make a key.
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    public = path.with_name(path.name + ".pub")
    if public.exists() and path.exists():
        return public.read_text(encoding="ascii").strip()
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    line = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write(path, private)
    # The public half comes last: where it stands, the pair is whole.
    _write(public, line + b" " + comment.encode() + b"\n")
    return public.read_text(encoding="ascii").strip()


def known_hosts(lab: Lab) -> str:
    """Every host that has an address, and the bastion, as lines of a known_hosts file."""
    known = [(host.address, host.port, host.host_key) for host in lab.hosts]
    bastion = lab.testbed.reach
    if isinstance(bastion, Bastion):
        known.append((bastion.host, bastion.port, bastion.host_key))
    return "".join(
        f"{known_name(address, port)} {' '.join(key.split()[:2])}\n"
        for address, port, key in known
        if address and key
    )


def known_name(address: str, port: int) -> str:
    """How OpenSSH writes a host that does not listen at the usual port."""
    return address if port == 22 else f"[{address}]:{port}"


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all, and never readable by others, not even for a moment."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
