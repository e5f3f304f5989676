"""Make a failing program smaller, as long as it fails in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from time import monotonic
from typing import TypeVar

from msgspec import structs

from broker.protocol.link import WINDOW_BYTES
from labctl.simulate.programs.delays import DelayModel
from labctl.simulate.programs.programs import (
    UNLIMITED_BYTES,
    Conditions,
    Journals,
    Op,
    Program,
    RegularProgram,
    TxProgram,
)

SEEDS_TRIED = 4
"""A smaller program draws its delays differently: the same failure may need another seed."""

T = TypeVar("T")
Fails = Callable[[Program], bool]


def shrink(program: Program, fails: Fails, seconds: float = 10.0) -> Program:
    """The smallest program found in so much time; `fails` tells whether one still shows the failure."""
    deadline = monotonic() + seconds
    found = True
    while found:
        found, place = False, 0
        while (candidate := next(islice(smaller(program), place, None), None)) is not None:
            if monotonic() > deadline:
                return program
            failing = _failing(candidate, fails)
            if failing is None:
                place += 1
            else:  # what comes next stands at the same place now
                program, found = failing, True
    return program


def _failing(program: Program, fails: Fails) -> Program | None:
    for seed in (program.seed, *range(SEEDS_TRIED)):
        candidate = structs.replace(program, seed=seed)
        if fails(candidate):
            return candidate
    return None


def smaller(program: Program) -> Iterator[Program]:
    """Programs with one thing less, those with much less first."""
    for name in ("transactions", "regular", "faults", "cuts", "restarts", "setup"):
        items = getattr(program, name)
        for place in range(len(items)):
            yield structs.replace(program, **{name: _without(items, place)})
    yield from _with_fewer_clients(program)
    yield from _with_fewer_brokers(program)
    yield from _with_smaller_bodies(program)
    yield from _under_usual_conditions(program)
    yield from _with_simpler_crashes(program)
    if program.window_bytes:
        yield structs.replace(program, window_bytes=0, cuts=(), journals=None, restarts=())
    if program.queue_bytes_max != UNLIMITED_BYTES:
        yield structs.replace(program, queue_bytes_max=UNLIMITED_BYTES)
    if program.window_bytes not in (0, WINDOW_BYTES):
        yield structs.replace(program, window_bytes=WINDOW_BYTES)
    if program.delays != DelayModel():
        yield structs.replace(program, delays=DelayModel())
    if program.slowness:
        yield structs.replace(program, slowness={})
    for link in program.slowness:
        kept = {name: mean for name, mean in program.slowness.items() if name != link}
        yield structs.replace(program, slowness=kept)


def _with_fewer_clients(program: Program) -> Iterator[Program]:
    used = {client for client, _ in program.setup}
    used |= {t.coordinator for t in program.transactions} | {r.client for r in program.regular}
    used |= {fault.client for fault in program.faults}
    for transaction in program.transactions:
        used |= set(_named(transaction.body))
    for client in program.homes:
        if client not in used:
            kept = {name: home for name, home in program.homes.items() if name != client}
            yield structs.replace(program, homes=kept)


def _under_usual_conditions(program: Program) -> Iterator[Program]:
    usual = Conditions()
    for name in ("clocks", "overlap", "limits", "expire_s"):
        value = getattr(usual, name)
        if getattr(program.conditions, name) != value:
            conditions = structs.replace(program.conditions, **{name: value})
            yield structs.replace(program, conditions=conditions)


def _with_simpler_crashes(program: Program) -> Iterator[Program]:
    if program.journals is None:
        return
    if not program.restarts:
        yield structs.replace(program, journals=None)
    if program.journals != Journals():
        yield structs.replace(program, journals=Journals())
    for place, restart in enumerate(program.restarts):
        for name in ("again", "behind_s"):
            if getattr(restart, name):
                simpler = structs.replace(restart, **{name: 0})
                yield structs.replace(program, restarts=_replaced(program.restarts, place, simpler))


def _named(body: tuple[Op, ...]) -> Iterator[str]:
    for op in body:
        if op.to:
            yield op.to
        for client, nested in op.nested:
            yield client
            yield from _named(nested)


def _with_fewer_brokers(program: Program) -> Iterator[Program]:
    """A broker is merged into a neighbour, with its links and clients."""
    for broker in program.brokers:
        neighbours = [b if a == broker else a for a, b in program.links if broker in (a, b)]
        for heir in neighbours[:1]:
            links = tuple(
                (heir if a == broker else a, heir if b == broker else b)
                for a, b in program.links
                if {a, b} != {broker, heir}
            )
            homes = {client: heir if home == broker else home for client, home in program.homes.items()}
            slowness = {k: v for k, v in program.slowness.items() if f"broker:{broker}" not in k.split(">")}
            brokers = tuple(name for name in program.brokers if name != broker)
            restarts = tuple(restart for restart in program.restarts if restart.broker != broker)
            yield structs.replace(
                program, brokers=brokers, links=links, homes=homes, slowness=slowness, restarts=restarts
            )


def _with_smaller_bodies(program: Program) -> Iterator[Program]:
    for place, transaction in enumerate(program.transactions):
        for fewer in _smaller_transactions(transaction):
            changed = _replaced(program.transactions, place, fewer)
            yield structs.replace(program, transactions=changed)
    for place, piece in enumerate(program.regular):
        for body in _smaller_bodies(piece.body):
            regular: tuple[RegularProgram, ...] = _replaced(
                program.regular, place, structs.replace(piece, body=body)
            )
            yield structs.replace(program, regular=regular)
    for place, (client, op) in enumerate(program.setup):
        for narrower in _narrower(op):
            yield structs.replace(program, setup=_replaced(program.setup, place, (client, narrower)))


def _smaller_transactions(transaction: TxProgram) -> Iterator[TxProgram]:
    if transaction.aborts_after >= 0:
        yield structs.replace(transaction, aborts_after=-1)
    for body in _smaller_bodies(transaction.body):
        yield structs.replace(transaction, body=body)


def _smaller_bodies(body: tuple[Op, ...]) -> Iterator[tuple[Op, ...]]:
    for place in range(len(body)):
        if len(body) > 1:
            yield _without(body, place)
    for place, op in enumerate(body):
        for changed in (*_narrower(op), *_less_nested(op)):
            yield _replaced(body, place, changed)


def _less_nested(op: Op) -> Iterator[Op]:
    for place, (client, body) in enumerate(op.nested):
        if len(op.nested) > 1:
            yield structs.replace(op, nested=_without(op.nested, place))
        for fewer in _smaller_bodies(body):
            yield structs.replace(op, nested=_replaced(op.nested, place, (client, fewer)))


def _narrower(op: Op) -> Iterator[Op]:
    if len(op.values) > 1:
        for place in range(len(op.values)):
            yield structs.replace(op, values=_without(op.values, place))


def _without(items: tuple[T, ...], place: int) -> tuple[T, ...]:
    return items[:place] + items[place + 1 :]


def _replaced(items: tuple[T, ...], place: int, item: T) -> tuple[T, ...]:
    return (*items[:place], item, *items[place + 1 :])
