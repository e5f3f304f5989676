"""Which hops want each of many events: the answers of `Index.hops`, for less than they cost one by one.

The index has one plan for all events of a batch. A step of it is taken for all of them before the next:
whether anything is filed under their keys at all, what is under each, and the answer of every cell that was
found, once. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from broker.matching.batch import BATCH_MIN, Batch, batches
from broker.matching.index import Index, united
from broker.matching.table import Cell
from broker.protocol.filters import Event

Hops = tuple[str, ...]


def hops_of_each(index: Index, events: Sequence[Event]) -> list[Collection[str]]:
    """By event, the hops behind which some client is in, in the committed view."""
    if len(events) < BATCH_MIN:
        return list(map(index.hops, events))
    together, odd = batches(events)
    if len(together) == 1 and not odd:
        return _hops_of_batch(index, together[0])
    answers: list[Collection[str]] = [()] * len(events)
    for batch in together:
        for place, hops in zip(batch.places, _hops_of_batch(index, batch), strict=True):
            answers[place] = hops
    for place in odd:
        answers[place] = index.hops(events[place])
    return answers


def _hops_of_batch(index: Index, batch: Batch) -> list[Collection[str]]:
    events = batch.events
    _, piles, lookups = index.plans[batch.names]
    if piles:
        return list(map(index.hops, events))
    found: list[Hops] = [()] * len(events)
    ranged: set[int] = set()
    """The places of those that have to be searched for among ranges."""
    for names, cells, piles_by_key in lookups:
        if cells and not cells.keys().isdisjoint(batch.keys(names)):
            more = _answers(index, batch, list(map(cells.get, batch.keys(names))))
            found = list(map(_both, found, more)) if any(found) else more
        if piles_by_key and not piles_by_key.keys().isdisjoint(batch.keys(names)):
            ranged.update(n for n, key in enumerate(batch.keys(names)) if key in piles_by_key)
    if not ranged:
        return list(found)
    return [index.hops(event) if n in ranged else found[n] for n, event in enumerate(events)]


def _answers(index: Index, batch: Batch, cells: Sequence[Cell | None]) -> list[Hops]:
    """Of the cell of each event. Where clients may have holes, the answer depends on the event."""
    simple: dict[Cell | None, Hops] = {}
    kinds = set(cells)
    for cell in kinds:
        if cell is None:
            simple[cell] = ()
        elif cell.home.holes is None:
            simple[cell] = cell.home.hops
    if len(kinds) == len(simple) == 1:
        return list(simple.values()) * len(cells)
    if len(kinds) == len(simple):
        return list(map(simple.__getitem__, cells))
    return [
        simple[cell] if cell is None or cell in simple else index.ask(cell, event, batch.names)
        for cell, event in zip(cells, batch.events, strict=True)
    ]


def _both(hops: Hops, more: Hops) -> Hops:
    if not hops or hops is more:
        return more
    return united(hops, more) if more else hops
