"""Every seed a world of its own: its delays, its mix of operations, its set of faults, each with its rate.

A generator draws all its programs by the same rates, so that they are alike: what needs many operations of one
kind and none of another, or links of very different speed, it meets seldom. Here each seed first draws the rates,
some of them nothing, and then changes by them what the generator has made. It has chance of its own: what the
generator makes of a seed stays the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from msgspec import Struct, field, structs

from labctl.simulate.programs.delays import DelayModel, drawn
from labctl.simulate.programs.maker import SPAN_S, VALUES
from labctl.simulate.programs.programs import Fault, Op, Program, TxProgram, directed_links

MIXED_SHARE = 0.3
SCALED_SHARE = 0.4
FAULTY_SHARE = 0.25
"""So many seeds have a mix, links of very different speed, faults of their own: clients that are gone hide what
the checks would object to."""
KINDS = ("sub", "usub", "adv", "uadv", "pub")
AMOUNTS = (0.0, 1.0, 1.0, 2.0, 2.0)
"""Of the operations of a kind, how many there are instead of one."""
PACES = (0.0, 0.3, 1.0, 1.0, 1.0, 3.0)
"""How far apart in time what begins by itself is, beside what the generator says."""
LOOKS_MAX = 2000
"""At open transactions, while one message is late."""
FAULTS = ("crash", "leave", "away", "back", "abort")


class Swarm(Struct, frozen=True):
    """What a seed has drawn."""

    delays: DelayModel
    pace: float
    amounts: Mapping[str, float] = field(default_factory=dict)
    """By kind of operation; one of each where it is not named."""
    rates: Mapping[str, float] = field(default_factory=dict)
    """By kind of fault, how often it strikes a client, or a transaction; of `back`, who is gone comes back."""
    is_scaled: bool = False


def draw(random: Random) -> Swarm:
    delays, pace = drawn(random), random.choice(PACES)
    amounts = {kind: random.choice(AMOUNTS) for kind in KINDS} if random.random() < MIXED_SHARE else {}
    rates = {}
    if random.random() < FAULTY_SHARE:
        rates = {kind: 10 ** random.uniform(-1.3, -0.2) for kind in FAULTS if random.random() < 0.4}
    return Swarm(delays, pace, amounts, rates, random.random() < SCALED_SHARE)


def swarmed(program: Program, name: str) -> Program:
    """`name` is that of the generator; whatever its protocols, a seed is the same world."""
    random = Random(f"swarm {name} {program.seed}")
    return changed(program, draw(random), random)


def changed(program: Program, swarm: Swarm, random: Random) -> Program:
    slowness = program.slowness
    if swarm.is_scaled:
        slowness = {link: 10 ** random.uniform(-1.5, 1.0) for link in directed_links(program)}
    transactions = tuple(
        structs.replace(
            _aborted(transaction, swarm.rates.get("abort", 0.0), random),
            body=_mixed(transaction.body, swarm.amounts, random),
            start=transaction.start * swarm.pace,
        )
        for transaction in program.transactions
    )
    regular = tuple(
        structs.replace(piece, body=_mixed(piece.body, swarm.amounts, random), start=piece.start * swarm.pace)
        for piece in program.regular
    )
    faults = (*program.faults, *_faults(program, swarm.rates, random))
    longest_s = swarm.delays.longest * max(slowness.values(), default=0.0) / 1e3
    expire_s = max(program.conditions.expire_s, longest_s / LOOKS_MAX)
    return structs.replace(
        program, transactions=transactions, regular=regular, faults=faults, slowness=slowness,
        delays=swarm.delays, conditions=structs.replace(program.conditions, expire_s=expire_s),
    )  # fmt: skip


def _mixed(body: tuple[Op, ...], amounts: Mapping[str, float], random: Random) -> tuple[Op, ...]:
    """So many of each kind: some are left out, some are followed by another one of their kind."""
    if not amounts:
        return body
    found: list[Op] = []
    for op in body:
        if op.kind == "tcm":
            nested = tuple((client, _mixed(reaction, amounts, random)) for client, reaction in op.nested)
            found.append(structs.replace(op, nested=nested))
            continue
        amount = amounts.get(op.kind, 1.0)
        if random.random() < amount:
            found.append(op)
        if random.random() < amount - 1.0:
            count = 1 if op.kind == "pub" else random.choice((1, 2))
            found.append(structs.replace(op, values=tuple(sorted(random.sample(VALUES, count)))))
    return tuple(found)


def _aborted(transaction: TxProgram, rate: float, random: Random) -> TxProgram:
    if transaction.aborts_after >= 0 or random.random() >= rate:
        return transaction
    return structs.replace(transaction, aborts_after=random.randint(0, len(transaction.body)))


def _faults(program: Program, rates: Mapping[str, float], random: Random) -> list[Fault]:
    found: list[Fault] = []
    kinds: tuple[Any, ...] = ("crash", "leave", "away")
    for client in program.homes:
        for kind in kinds:
            if random.random() < rates.get(kind, 0.0):
                time, lost = 2 * SPAN_S * random.random(), random.choice((0, 0, 1, 2))
                is_back = kind != "away" and random.random() < rates.get("back", 0.0)
                back_after = 10 ** random.uniform(-4, -1.5) if is_back else 0.0
                found.append(Fault(kind, client, time, lost if kind == "crash" else 0, back_after))
    return found
