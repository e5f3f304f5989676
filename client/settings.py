"""How a connection behaves; every value can be given to `connect`."""

from __future__ import annotations

import os

from msgspec import Struct

from broker.protocol.delay import Delay
from broker.protocol.events import Detail


class Settings(Struct, frozen=True):
    """How patient a connection is, and what it emulates and records."""

    timeout_s: float = 10.0
    """Of every request."""
    connect_s: float = 2.0
    """How long a first connection is tried: an overlay may be just coming up."""
    reconnect_s: float = 30.0
    """How long a lost connection is sought again."""
    silence_s: float = 15.0
    """After so much silence a connection is dead, whatever TCP says."""
    queue_max: int = 10_000
    """How many deliveries wait here unread before the broker keeps them; answers wait behind them."""
    queue_bytes_max: int = 16 << 20
    """And how many bytes of payload."""
    delay: Delay = Delay()
    """Emulated on the way to the broker."""
    log_file: str | os.PathLike[str] | None = None
    """Gets a line of JSON for what happens to the connection, and vitals once a second."""
    log_bytes_max: int = 16 << 20
    """Of that file; a few older ones are kept beside it."""
    history: str | os.PathLike[str] | None = None
    """Gets a line of JSON for whatever this client does and is told: the material of `labctl check`."""
    history_detail: Detail = "all"
