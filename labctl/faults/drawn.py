"""Random faults: the same seed, the same faults; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from msgspec import Struct

from labctl.faults.plan import LINK_KINDS, NODE_KINDS, Fault, FaultyNode, Kind, LinkFault, NodeFault, overlap
from labctl.topology import Topology

TRIES = 50
"""To find one that does not get into the way of a fault at a given time; then the piece of time has none."""


class FaultChoice(Struct, frozen=True):
    """What may be drawn."""

    every_s: float
    kinds: Sequence[Kind]
    nodes: Mapping[Kind, Sequence[FaultyNode]]
    """By kind, whom it may meet."""
    for_s: tuple[float, float]
    by_ms: float


def draw(
    choice: FaultChoice, lasts_s: float, tree: Topology, seed: int, given: Sequence[Fault]
) -> list[Fault]:
    """One in each piece of `every_s` but the first, and none that is not over in its piece."""
    random = Random(f"faults/{seed}")
    found: list[Fault] = []
    for piece in range(1, int(lasts_s / choice.every_s)):
        for _ in range(TRIES):
            fault = _one(random, choice, tree, piece * choice.every_s)
            if not any(overlap(fault, other) and fault.targets & other.targets for other in given):
                found.append(fault)
                break
    return found


def _one(random: Random, choice: FaultChoice, tree: Topology, from_s: float) -> Fault:
    kind = random.choice(choice.kinds)
    for_s = round(random.uniform(*choice.for_s), 3)
    at_s = round(from_s + random.uniform(0.0, choice.every_s - for_s), 3)
    if kind in NODE_KINDS:
        return NodeFault(kind=kind, node=random.choice(choice.nodes[kind]), at_s=at_s, for_s=for_s)
    assert kind in LINK_KINDS
    link = random.choice(tree.links)
    # A tree falls into two parts wherever a link is cut: the partition that one link can make.
    return LinkFault(
        kind=kind, links=(link,), at_s=at_s, for_s=for_s, by_ms=choice.by_ms if kind == "slow" else 0.0
    )
