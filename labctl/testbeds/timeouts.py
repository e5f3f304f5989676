"""How long anything on a testbed may take. No other module there has a time-out of its own.

A testbed file may change any of them under `timeouts`.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

Seconds = Annotated[float, Meta(gt=0, extra={"problem": "a time-out is longer than nothing"})]


class Timeouts(Struct, frozen=True, forbid_unknown_fields=True):
    """How long anything may take, in seconds."""

    connect_s: Seconds = 10.0
    """Until a TCP connection stands: to the cloud's services, to a host's sshd, which may refuse it at first."""
    request_s: Seconds = 60.0
    """One request to the cloud, from the last byte sent to the first byte of the answer."""
    retry_s: Seconds = 30.0
    """How long a question to the cloud, which changes nothing, is repeated while there is no answer."""
    build_s: Seconds = 600.0
    """From the request for a machine until the cloud says that it runs."""
    boot_s: Seconds = 600.0
    """From a running machine until its sshd answers; software emulation takes minutes."""
    delete_s: Seconds = 300.0
    """Until something that was deleted is no longer listed."""
    conflict_s: Seconds = 120.0
    """How long a deletion is repeated while the cloud answers that the thing is still in use."""
    settle_s: Seconds = 10.0
    """How old a creation without an answer must be before an empty listing proves that it never happened."""
    poll_s: Seconds = 1.0
    """Between two looks at something that takes its time."""
    login_s: Seconds = 30.0
    """SSH: banner, key exchange and authentication."""
    command_s: Seconds = 120.0
    """A command on a host that is expected to end by itself."""
    transfer_s: Seconds = 600.0
    """A file to or from a host."""
    keepalive_s: Seconds = 15.0
    """Between two signs of life on an idle SSH connection."""
    lock_s: Seconds = 2.0
    """How long a labctl waits for another one that works on the same lab."""


DEFAULTS = Timeouts()
