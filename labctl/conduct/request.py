"""What is asked of a run or of a calibration: the options of a command, each read once; pure."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from broker.protocol.events import Detail
from labctl.conduct.wait_search import Procedure
from labctl.experiment.schedule import Profile


class CellsRequest(Struct, frozen=True, kw_only=True):
    """Which cells, where, and where what comes of them is kept."""

    name: str
    """Of an experiment that is known, the path of a file, or all."""
    profile: Profile
    only: tuple[str, ...] = ()
    """Choices of cells, as `approach=s-tx`."""
    repeat: int | None = None
    """Other than the profile's repetitions."""
    seed: int = 1
    with_delay: bool = True
    lab: str | None = None
    """None: on this machine."""
    packs: bool = False
    """Several processes on a host of the lab, where there are not enough."""
    results: Path = Path("results")
    history: Detail = "transactions"
    """How much nodes write down, but for calibrations, which know what they need."""


class RunRequest(CellsRequest, frozen=True, kw_only=True):
    """`labctl run experiment`."""

    resume: bool = False
    recalibrate: bool = False
    keep_on_failure: bool = False
    """What has failed is left running, for somebody to look at; nothing else is begun."""


class CalibrationRequest(CellsRequest, frozen=True, kw_only=True):
    """`labctl calibrate-wait`."""

    procedure: Procedure = "needs"
    step_ms: float | None = None
    """Other than the experiment's."""
