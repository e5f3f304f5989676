"""What can be asked of the simulator, and how the words of a command line are read; pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from broker.protocol.vocabulary import PROTOCOLS, Protocol
from labctl.exits import UsageProblem
from labctl.simulate.programs.generate import GENERATORS
from labctl.simulate.programs.variants import MIXED, PROTOCOL_CHOICES, Variant, protocols_of
from labctl.simulate.search.measure import MedianDelays

SIZES = (1, 3, 9, 100, 1000)
"""Of the overlays that are measured, in brokers."""


class Schedules(Struct, frozen=True):
    """Which schedules: those of each of these generators for each of these protocols."""

    protocols: tuple[str, ...]
    scenarios: tuple[str, ...]

    @property
    def protocol(self) -> str:
        """In one word, for programs."""
        return "all" if self.protocols == PROTOCOL_CHOICES else ",".join(self.protocols)

    @property
    def scenario(self) -> str:
        return "all" if self.scenarios == tuple(GENERATORS) else ",".join(self.scenarios)


class Campaign(Struct, frozen=True):
    """Random schedules of many seeds."""

    choice: Schedules
    first: int
    end: int
    """The seed after the last."""
    variant: Variant
    jobs: int
    record: Path | None = None
    keeps_going: bool = False
    shrink_s: float = 10.0


class Replay(Struct, frozen=True):
    """One schedule, step by step."""

    protocol: str
    scenario: str
    seed: int
    variant: Variant


class Exploration(Struct, frozen=True):
    """All schedules of small worlds."""

    protocols: tuple[str, ...]
    limit: int
    """Runs of each world."""


class Measurement(Struct, frozen=True):
    """Transactions in virtual time."""

    protocols: tuple[Protocol, ...]
    sizes: tuple[int, ...]
    delays: MedianDelays


class LongRun(Struct, frozen=True):
    """Many transactions in one world."""

    protocols: tuple[Protocol, ...]
    brokers: int
    transactions: int


# Words into values


def choice(protocol_names: str, scenario_names: str) -> Schedules:
    return Schedules(protocols(protocol_names), _chosen(scenario_names, tuple(GENERATORS), "scenario"))


def one_schedule(seed: int, chosen: Schedules, variant: Variant) -> Replay:
    if len(chosen.protocols) != 1 or len(chosen.scenarios) != 1:
        raise UsageProblem("a replay needs one --protocol and one --scenario: a seed means nothing without")
    return Replay(chosen.protocols[0], chosen.scenarios[0], seed, variant)


def protocols(names: str) -> tuple[str, ...]:
    return _chosen(names, PROTOCOL_CHOICES, "protocol")


def measurable_protocols(names: str) -> tuple[Protocol, ...]:
    """Each by itself, where all are meant; several in one overlay have no latency of their own."""
    found = tuple(p for p in PROTOCOLS if p in protocols(names))
    if not found:
        raise UsageProblem(f"a measurement takes one of {', '.join(PROTOCOLS)}; {MIXED} is not one protocol")
    return found


def protocols_together(names: str) -> tuple[Protocol, ...]:
    """All that are named, in one overlay."""
    return tuple(p for p in PROTOCOLS if any(p in protocols_of(name) for name in protocols(names)))


def _chosen(text: str, known: Sequence[str], noun: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for name in names:
        if name not in known:
            raise UsageProblem(f"there is no {noun} {name!r}; choose from {', '.join(known)}")
    return names or tuple(known)


def sizes(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise UsageProblem(f"--brokers {text}: write numbers from 1 on, with commas between them")
    return tuple(int(part) for part in parts) or SIZES


def seed_range(text: str) -> tuple[int, int]:
    first, colon, end = text.partition(":")
    if not first.isdecimal() or (colon and not end.isdecimal()):
        raise UsageProblem(f"--seeds {text}: write FIRST:END, such as 0:1000, or one seed")
    found = (int(first), int(end) if colon else int(first) + 1)
    if found[1] <= found[0]:
        raise UsageProblem(f"--seeds {text}: there is no seed in this range")
    return found
