"""Where things are: this project's own files, and what labctl keeps on a machine."""

from __future__ import annotations

import os
from pathlib import Path

PROJECT = Path(__file__).parents[1]
"""The folder that holds `labctl`, `broker`, `client` and `playbooks`: a checkout, or site-packages."""


def state_root() -> Path:
    """Where labctl keeps what outlives a command."""
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser().resolve() / "labctl"
