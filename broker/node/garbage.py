"""How often a process of ours looks for garbage: rarely, because it makes hardly any."""

from __future__ import annotations

import gc


def collect_rarely() -> None:
    """Tables are large and hold no cycles, and whoever measures would measure the collection too."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)
