"""How often, in which order and from where the cells of an experiment are run; pure.

Everything random here comes from the seed of the run. The placement of a repetition depends on the seed, the
overlay, the scenario and the repetition, not on the approach: approaches are compared on the same placements,
and a wait is calibrated on those on which it will be used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from client.scenarios.approaches import approach_of
from client.scenarios.stage import Disruption
from labctl.experiment import client_processes
from labctl.experiment.cell import STEP_MS, Cell

ProfileName = Literal["quick", "standard", "paper"]


class Profile(Struct, frozen=True):
    name: ProfileName
    transactions: int
    """Counted, per coordinator."""
    repetitions: int
    warm_up: int
    """Before those; kept, not counted."""
    calibration: int
    """So many correct transactions confirm a wait."""

    def leaves_out(self, cell: Cell) -> bool:
        """The quick one has neither stalls nor fine steps, whose calibration alone takes many minutes."""
        return self.name == "quick" and (cell.stalls or cell.step_ms not in (None, STEP_MS))


PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile("quick", 50, 1, 5, 200),
        Profile("standard", 100, 5, 5, 200),
        Profile("paper", 1000, 5, 50, 1000),
    )
}


def profile_of(name: str, transactions: int | None = None) -> Profile:
    """With so many transactions instead of its own, where they are given."""
    profile = PROFILES[name]
    return profile if transactions is None else replace(profile, transactions=transactions)


class Unit(Struct, frozen=True):
    """One repetition of a cell: what is run, and found again, as a whole."""

    cell: Cell
    repetition: int
    """From 1."""
    seed: int
    placement: dict[str, str]
    """Client to broker."""

    @property
    def key(self) -> tuple[str, int]:
        return self.cell.id, self.repetition

    @property
    def label(self) -> str:
        return f"{self.cell.id} #{self.repetition}"


def units(cells: Iterable[Cell], repetitions: int, seed: int) -> list[Unit]:
    """Repetition by repetition, each with all cells in a random order.

    Whatever drifts on the machine meets all cells alike, and a run that is cut short has nearly the same
    number of repetitions of each.
    """
    found = []
    chosen = sorted(cells, key=lambda cell: cell.id)
    for repetition in range(1, repetitions + 1):
        order = Random(f"order/{seed}/{repetition}")
        found += [unit(cell, repetition, seed) for cell in order.sample(chosen, len(chosen))]
    return found


def unit(cell: Cell, repetition: int, seed: int) -> Unit:
    return Unit(cell, repetition, seed_of(seed, cell.id, str(repetition)), placement(cell, repetition, seed))


def seed_of(seed: int, *names: str) -> int:
    """A seed of its own for everything that has a name; the same on every machine and in every version."""
    digest = hashlib.sha256("/".join((str(seed), *names)).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def placement(cell: Cell, repetition: int, seed: int) -> dict[str, str]:
    """Every client at some broker: random, but no broker has two more than another."""
    draw = Random(f"placement/{seed}/{cell.cast}/{cell.brokers}/{cell.copies}/{repetition}")
    clients = client_processes.clients(cell)
    brokers = [f"b{number}" for number in range(1, cell.brokers + 1)]
    homes: list[str] = []
    while len(homes) < len(clients):
        homes += draw.sample(brokers, len(brokers))
    homes = homes[: len(clients)]
    draw.shuffle(homes)
    return dict(zip(clients, homes, strict=True))


# How long it will take: for a dry run, and for the time left until something has been measured.

_BETWEEN_MS = 5.0
"""What one transaction and the next have between them."""
_START_S, _BROKER_S, _CLIENT_S = 0.6, 0.12, 0.12
"""Start, proof and stop of an overlay, and what each of its processes adds on two cores."""
_EVENTS_PER_S = 15_000
_LOADED = 1.5
"""Times as long takes a transaction beside regular events."""
_SHARE = {1: 0.7, 3: 1.0, 5: 1.15, 9: 1.4}


def estimate_s(
    cell: Cell,
    profile: Profile,
    disruption: Disruption,
    has_delay: bool = True,
    lasts_s: float | None = None,
) -> float:
    """Of one repetition; `lasts_s`: of what is measured, where that is given."""
    start_s = _start_s(cell)
    if lasts_s is not None:
        return start_s + lasts_s
    one_s = transaction_s(cell, has_delay)
    if cell.scenario == "disruption":
        rate = _EVENTS_PER_S * (disruption.open_share if cell.load == "open" else 1.0)
        work_s = disruption.rounds * (disruption.events / rate + disruption.instances * _LOADED * one_s)
        return start_s + work_s + (disruption.events / _EVENTS_PER_S)
    return start_s + (profile.transactions + profile.warm_up) * one_s / cell.in_flight


def _start_s(cell: Cell) -> float:
    return _START_S + cell.brokers * _BROKER_S + len(client_processes.clients(cell)) * _CLIENT_S


def transaction_s(cell: Cell, has_delay: bool = True) -> float:
    growth = _SHARE.get(cell.brokers, 1.6) * (1 + 0.06 * (cell.in_flight - 1) + 0.07 * (cell.copies - 1))
    latency_ms = approach_of(cell.approach).latency_ms * (growth if has_delay else 0.3 * growth)
    if cell.stalls and cell.waits:
        latency_ms += 130
    return (latency_ms + _BETWEEN_MS) / 1e3


def calibration_s(cell: Cell, profile: Profile, repetitions: int) -> float:
    """Three runs, each over all placements: what is needed, at the wait, and one step below."""
    start_s = _start_s(cell)
    each_s = profile.calibration * transaction_s(cell) / (cell.in_flight * cell.copies)
    return 3 * (each_s + repetitions * start_s)


class Pace:
    """What is left, by what has been measured so far where that is more than an estimate."""

    def __init__(self, estimates: Mapping[str, float]) -> None:
        """Seconds by cell."""
        self._estimates = dict(estimates)
        self._measured: dict[str, list[float]] = {}

    def took(self, cell: str, seconds: float) -> None:
        self._measured.setdefault(cell, []).append(seconds)

    def left_s(self, cells: Sequence[str]) -> float:
        """Of repetitions of these cells."""
        return sum(self._expected(cell) for cell in cells)

    def _expected(self, cell: str) -> float:
        own = self._measured.get(cell)
        if own:
            return sum(own) / len(own)
        return self._estimates[cell] * self._bias()

    def _bias(self) -> float:
        """How much longer than estimated everything has taken."""
        if not self._measured:
            return 1.0
        took = sum(sum(times) / len(times) for times in self._measured.values())
        return took / sum(self._estimates[cell] for cell in self._measured)
