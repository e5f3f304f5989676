"""A broker's configuration as TOML: who it is, where it listens, who its neighbours are.

People write YAML; hosts read TOML, because the standard library can. The emitter knows only the few
types that a node file needs. `broker` reads the file and judges it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.protocol.delay import Delay
from broker.protocol.filters import Overlap
from labctl.topology import NO_DELAY, Topology

Scalar = str | int | float | bool
Plain = Scalar | tuple[Scalar, ...]
"""What stands to the right of `=`."""

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


@dataclass(frozen=True)
class Common:
    """What all brokers of an overlay have in common; None and what is not named: the broker's default."""

    overlap: Overlap = "all"
    grace_ms: int | None = None
    silence_ms: int | None = None
    patience_ms: int | None = None
    queue_bytes_max: int | None = None
    limits: Mapping[str, int] = field(default_factory=dict)
    history_folder: str | None = None
    """Where each broker's history goes, as `<broker>.jsonl`."""
    history_detail: str | None = None
    durable: str | None = None
    data_folder: str | None = None
    """Where each durable broker has its data folder, as `<broker>.data`."""
    overlay: str | None = None
    """Whose brokers they are: a data folder is not taken over by another overlay."""
    control_folder: str | None = None
    """Where each broker finds how its links are at present, as `<broker>.json`; for faults."""


COMMON = Common()


@dataclass(frozen=True)
class NeighbourEntry:
    id: str
    address: str | None
    """None where the neighbour dials us."""
    delay: Delay = NO_DELAY


@dataclass(frozen=True)
class Node:
    id: str
    listen: str
    neighbours: tuple[NeighbourEntry, ...] = ()
    common: Common = COMMON
    client_delay: Delay = NO_DELAY


def plan(topology: Topology, addresses: Mapping[str, str], common: Common = COMMON) -> tuple[Node, ...]:
    """One node per broker, in the topology's order. The end of a link that is named first dials."""
    dialled = set(topology.links)
    return tuple(
        Node(
            id=broker,
            listen=addresses[broker],
            neighbours=tuple(
                NeighbourEntry(
                    other,
                    addresses[other] if (broker, other) in dialled else None,
                    topology.delay(broker, other),
                )
                for other in topology.neighbours(broker)
            ),
            common=common,
            client_delay=topology.client_delay,
        )
        for broker in topology.brokers
    )


def emit(node: Node) -> str:
    """The node as TOML; a section that would say nothing is left out."""
    common = node.common
    top: dict[str, Plain] = {"id": node.id, "listen": node.listen, "overlap": common.overlap}
    for name in ("grace_ms", "silence_ms", "patience_ms", "queue_bytes_max"):
        value: int | None = getattr(common, name)
        if value is not None:
            top[name] = value
    if common.history_folder is not None:
        top["history"] = f"{common.history_folder}/{node.id}.jsonl"
    if common.history_detail is not None:
        top["history_detail"] = common.history_detail
    if common.overlay is not None:
        top["overlay"] = common.overlay
    if common.control_folder is not None:
        top["control"] = f"{common.control_folder}/{node.id}.json"
    if common.durable is not None:
        top |= {"durable": common.durable, "data": f"{common.data_folder}/{node.id}.data"}
    lines = _pairs(top)
    if common.limits:
        lines += ["", "[limits]", *_pairs(common.limits)]
    if not node.client_delay.is_zero:
        lines += ["", "[clients]", *_pairs(_delay_pairs(node.client_delay))]
    for neighbour in node.neighbours:
        pairs: dict[str, Plain] = {"id": neighbour.id}
        if neighbour.address is not None:
            pairs["address"] = neighbour.address
        lines += ["", "[[neighbours]]", *_pairs(pairs | _delay_pairs(neighbour.delay))]
    return "\n".join(lines) + "\n"


def _delay_pairs(delay: Delay) -> dict[str, Plain]:
    if delay.is_zero:
        return {}
    pairs: dict[str, Plain] = {"delay_ms": delay.delay_ms, "sigma": delay.sigma}
    if delay.stall_probability:
        pairs |= {"stall_probability": delay.stall_probability, "stall_ms": delay.stall_ms}
    return pairs | {"seed": delay.seed}


def _pairs(values: Mapping[str, Plain] | Mapping[str, int]) -> list[str]:
    return [f"{_key(key)} = {_value(value)}" for key, value in values.items()]


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _text(key)


def _value(value: Plain) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} has no place in a node file")
    return repr(value)


def _text(text: str) -> str:
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if ord(character) < 0x20 or ord(character) == 0x7F:
        return f"\\u{ord(character):04X}"
    return character
