"""What faults may happen to: the brokers, links and clients of a cell, and why one of them is spared; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from labctl.faults.plan import FaultPlanError, FaultyNode, NodeFault
from labctl.topology import Link, Topology
from labctl.yamlfaults import nearest

RESTART_S_MAX = 20.0
"""A broker may be away for so long: clients look for theirs a little longer, then they give up."""


class FaultStage(Struct, frozen=True):
    """What faults may happen to: the brokers and clients of a cell."""

    tree: Topology
    clients: Mapping[str, str]
    """Each with why it cannot be killed, or nothing."""
    is_durable: bool
    """Its brokers keep a log, by which one that was killed goes on."""
    label: str = ""


def node_of(text: str, setting: FaultStage) -> FaultyNode:
    known = {f"broker {name}": FaultyNode("broker", name) for name in setting.tree.brokers}
    known |= {f"client {name}": FaultyNode("client", name) for name in setting.clients}
    if text in known:
        return known[text]
    where = f" in {setting.label}" if setting.label else ""
    # Without its role, or with the wrong one, it is that name that was meant.
    alike = [each for each in known if each.endswith(f" {text.rpartition(' ')[2]}")]
    hint = f"did you mean {alike[0]!r}?" if len(alike) == 1 else nearest(text, known)
    raise FaultPlanError(f"there is no {text!r}{where}; {hint}")


def why_not(fault: NodeFault, setting: FaultStage) -> str:
    """Why this cannot happen to the node; empty if it can."""
    node, where = fault.node, f" in {setting.label}" if setting.label else ""
    if node.role == "client":
        if fault.kind == "fill_disk":
            return f"{node} keeps nothing on a disk that could be full; fill_disk is for brokers"
        reason = setting.clients[node.name] if fault.kind == "kill" else ""
        return f"{node} cannot be killed{where}: {reason}" if reason else ""
    if fault.kind == "kill" and not setting.is_durable:
        return f"{node} cannot be killed{where}: it keeps nothing, and the overlay ends with it; set durable: os or fsync"
    if fault.kind == "fill_disk" and not setting.is_durable:
        return f"{node} has no data folder that could be full{where}; set durable: os or fsync"
    if fault.kind == "kill" and fault.for_s > RESTART_S_MAX:
        return f"{node} is away for {fault.for_s:g} s; clients look for their broker for {RESTART_S_MAX:g} s"
    return ""


def link_of(ends: Sequence[str], tree: Topology) -> Link:
    for name in ends:
        _known(name, tree)
    one, other = ends
    for link in tree.links:
        if link in ((one, other), (other, one)):
            return link
    known = ", ".join(f"{a} - {b}" for a, b in tree.links) or "none"
    raise FaultPlanError(f"there is no link {one} - {other}; there are {known}")


def between(parts: Sequence[Sequence[str]], tree: Topology) -> tuple[Link, ...]:
    """The links whose ends are in different parts."""
    part_of: dict[str, int] = {}
    for number, names in enumerate(parts):
        for name in names:
            if part_of.setdefault(_known(name, tree), number) != number:
                raise FaultPlanError(f"broker {name} is in two parts")
    if missing := [name for name in tree.brokers if name not in part_of]:
        raise FaultPlanError(f"a partition names every broker, and {', '.join(missing)} is in no part")
    return tuple(link for link in tree.links if part_of[link[0]] != part_of[link[1]])


def _known(name: str, tree: Topology) -> str:
    if name not in tree.brokers:
        raise FaultPlanError(f"there is no broker {name!r}; {nearest(name, tree.brokers)}")
    return name
