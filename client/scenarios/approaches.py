"""What experiments compare: the protocols of the brokers and BL-WAIT, one row each.

A row says what is true of an approach: what its protocol promises (`broker.protocol.vocabulary`), what it is held to, how it
is called and drawn. Everybody else asks for the row instead of comparing names.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from msgspec import Struct

from broker.protocol.vocabulary import D_TX, D_TX_NI, D_TX_OPTIMISTIC, ISOLATED, PLANNED, S_TX, S_TX_SAFE

BL_WAIT: Final = "bl-wait"


class Family(Enum):
    """How a scenario is carried out in it."""

    BL_WAIT = "regular operations, and a wait that is calibrated"
    D_TX = "a transaction whose participants are asked while it runs"
    S_TX = "a transaction that is planned beforehand"


class Approach(Struct, frozen=True):
    """The defaults are what holds of somebody's own, of which we know nothing."""

    name: str
    label: str
    """As the paper calls it."""
    family: Family | None = None
    latency_ms: float = 160.0
    """Of one dispatching transaction on three brokers, about: for estimates of how long a run takes."""
    colour: str = "#8a8a89"
    marker: str = "o"
    is_exact: bool = True
    """It promises who gets what: wrong routing is a fault, and not only counted."""

    @property
    def is_transactional(self) -> bool:
        """All or nothing, with a history that shows it; otherwise its wait has to be calibrated."""
        return self.family is not Family.BL_WAIT

    @property
    def is_planned(self) -> bool:
        return self.name in PLANNED

    @property
    def is_isolated(self) -> bool:
        return self.name in ISOLATED


# Colours are Okabe and Ito's, which colour-blind readers can tell apart; markers say the same again.
_ROWS = (
    Approach(BL_WAIT, "BL-WAIT", Family.BL_WAIT, 80.0, "#E69F00", "s", is_exact=False),
    Approach(D_TX, "D-TX", Family.D_TX, 160.0, "#0072B2", "o"),
    Approach(D_TX_NI, "D-TX_NI", Family.D_TX, 160.0, "#56B4E9", "^", is_exact=False),
    Approach(S_TX, "S-TX", Family.S_TX, 48.0, "#009E73", "D"),
    Approach(D_TX_OPTIMISTIC, "D-TX optimistic", Family.D_TX, 160.0, "#D55E00", "v"),
    Approach(S_TX_SAFE, "S-TX safe", Family.S_TX, 63.0, "#CC79A7", "P"),
)
APPROACHES: Mapping[str, Approach] = {row.name: row for row in _ROWS}
"""In the order of reports: the paper's four, then what we add."""


def approach_of(name: str) -> Approach:
    """Its row; for the dotted name of somebody's own one with the defaults."""
    return APPROACHES.get(name) or Approach(name, label=name)
