"""A plan of faults: what happens when, and to which node or link; pure.

Times count from the beginning of what is measured. A node or a link has one fault at a time, and every fault is
over when the plan is: what comes of the last one is still measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct

from labctl.exits import UsageProblem
from labctl.topology import Link

NodeKind = Literal["kill", "pause", "fill_disk"]
LinkKind = Literal["cut", "slow", "partition"]
Kind = Literal["kill", "pause", "fill_disk", "cut", "slow", "partition"]
Role = Literal["broker", "client"]

NODE_KINDS: tuple[NodeKind, ...] = get_args(NodeKind)
LINK_KINDS: tuple[LinkKind, ...] = get_args(LinkKind)
KINDS: tuple[Kind, ...] = get_args(Kind)


class FaultPlanError(UsageProblem):
    """A plan that cannot be carried out; the text names the fault."""


class FaultyNode(Struct, frozen=True, order=True):
    role: Role
    name: str

    def __str__(self) -> str:
        return f"{self.role} {self.name}"


class Timed(Struct, frozen=True, kw_only=True, tag_field="of"):
    at_s: float
    for_s: float
    """Of a kill: until it is started again."""

    @property
    def end_s(self) -> float:
        return self.at_s + self.for_s


class NodeFault(Timed, frozen=True, kw_only=True, tag="node"):
    kind: NodeKind
    node: FaultyNode

    @property
    def targets(self) -> frozenset[str]:
        return frozenset({str(self.node)})

    def __str__(self) -> str:
        words = {"kill": "kill", "pause": "pause", "fill_disk": "fill the disk of"}
        return f"{words[self.kind]} {self.node}"


class LinkFault(Timed, frozen=True, kw_only=True, tag="links"):
    kind: LinkKind
    links: tuple[Link, ...]
    """Each with the end first that comes first in the overlay's own list of links."""
    by_ms: float = 0.0
    """Of a slow link: what it adds to each message, either way."""

    @property
    def targets(self) -> frozenset[str]:
        return frozenset(f"{a} - {b}" for a, b in self.links)

    def __str__(self) -> str:
        by = f" by {self.by_ms:g} ms" if self.kind == "slow" else ""
        return f"{self.kind} {', '.join(f'{a} - {b}' for a, b in self.links)}{by}"


Fault = NodeFault | LinkFault


class FaultPlan(Struct, frozen=True):
    lasts_s: float
    """How long is measured."""
    faults: tuple[Fault, ...]
    """By the time at which they begin."""

    def document(self) -> dict[str, Any]:
        """For a result: `plan_of` reads it again."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    def lines(self) -> list[str]:
        """For people, a line for each fault."""
        return [f"{fault.at_s:g} s to {fault.end_s:g} s: {fault}" for fault in self.faults]

    @property
    def longest_s(self) -> float:
        return max((fault.for_s for fault in self.faults), default=0.0)

    def restarts(self, role: Role) -> bool:
        """Whether processes of this kind are started anew."""
        return any(
            isinstance(fault, NodeFault) and fault.kind != "pause" and fault.node.role == role
            for fault in self.faults
        )


def plan_of(document: Mapping[str, Any]) -> FaultPlan:
    """Raises `msgspec.ValidationError` for what is none."""
    return msgspec.convert(document, FaultPlan)


def made(lasts_s: float, faults: Iterable[Fault]) -> FaultPlan:
    """In their order; raises `FaultPlanError` where faults get into each other's way."""
    ordered = tuple(sorted(faults, key=lambda fault: (fault.at_s, str(fault))))
    for fault in ordered:
        if fault.end_s > lasts_s:
            raise FaultPlanError(_too_late(fault, lasts_s))
    for one, other in combinations(ordered, 2):
        if (both := one.targets & other.targets) and overlap(one, other):
            raise FaultPlanError(
                f"{min(both)} has two faults at once: {one} until {one.end_s:g} s, {other} at {other.at_s:g} s"
            )
    return FaultPlan(lasts_s, ordered)


def overlap(one: Timed, other: Timed) -> bool:
    return one.at_s < other.end_s and other.at_s < one.end_s


def _too_late(fault: Fault, lasts_s: float) -> str:
    if fault.at_s >= lasts_s:
        return f"{fault} at {fault.at_s:g} s comes after the end: {lasts_s:g} s are measured (lasts_s)"
    return f"{fault} is over at {fault.end_s:g} s, after the end: {lasts_s:g} s are measured (lasts_s)"
