"""Programs whose brokers keep journals, and crash at any moment."""

from __future__ import annotations

from random import Random
from typing import Any

from msgspec import structs

from labctl.simulate.programs.maker import SPAN_S
from labctl.simulate.programs.programs import Journals, Program, Restart

SYNCS_S = (0.0, 1e-3, 1e-2)
SNAPSHOTS = (0.0, 0.1, 0.5)
GRACES_S = (5.0, 5.0, 5.0, 0.05)
PAUSES_S = (1e-3, 1e-2, 1e-1)
KINDS = ("crash", "crash", "kill", "fail")
OPERATIONS_MAX = 30
"""An operation of the disk before which a broker ends is one of so many."""
BEHIND_S = 1e6


def durable(program: Program, random: Random, rate: float = 0.0) -> Program:
    """`rate`: how often each broker crashes, in the mean; 0: as often as chance says."""
    rate = rate or random.choice((0.1, 0.3, 1.0, 3.0))
    journals = Journals(random.choice(SYNCS_S), random.choice(SNAPSHOTS), random.choice(GRACES_S))
    restarts = []
    for broker in program.brokers:
        while random.random() < rate / (1 + rate):
            restarts.append(_restart(broker, random))
    return structs.replace(program, journals=journals, restarts=tuple(restarts))


def _restart(broker: str, random: Random) -> Restart:
    kind: Any = random.choice(KINDS)
    is_in_disk = kind == "fail" or random.random() < 0.5
    return Restart(
        broker,
        time=2 * SPAN_S * random.random(),
        kind=kind,
        pause_s=random.choice(PAUSES_S) * random.random(),
        operations=random.randint(1, OPERATIONS_MAX) if is_in_disk else 0,
        again=random.randint(1, 4) if random.random() < 0.2 else 0,
        behind_s=BEHIND_S * random.random() if random.random() < 0.3 else 0.0,
    )
