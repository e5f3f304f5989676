"""The tables of brokers when nothing is under way any more: do they agree, and is nothing left behind in them?

Asked of the tables themselves, so also where nobody advertises or publishes just now, and of what no event shows:

- every broker knows the same clients, and by which link each lies;
- every broker knows of each advertisement what the client's edge broker knows of it;
- of a client's subscriptions a broker knows what its neighbour on the way to the client knows; where it does not,
  that neighbour has the newer record and has not marked it as sent, so that the next advertisement fetches it;
- a record that this neighbour has dropped is gone here, too, unless it has an effect here, or seems to have one
  (a broker looks at one older record at a time);
- no broker keeps a record that it would itself have dropped;
- nothing waits to be compacted, and no committed transaction is thought to be under way anywhere.

What a record contains is a number here, with a bit for each event that is asked about.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from broker.matching.boxes import contains
from broker.matching.records import Record, stamp_of
from broker.protocol.filters import Event, Filter, subsumes
from broker.protocol.hops import Hop, broker_hop, name_of
from broker.protocol.vocabulary import Stamp
from broker.routing.state import BrokerState
from labctl.checks.verdict import Verdict

Bits = int
Known = dict[str, list[Record]]
"""Records by client, in the order of their stamps."""


def tables(states: Mapping[str, BrokerState], probes: Sequence[Event]) -> Verdict:
    """Of an overlay that is a tree, at quiet: not where time stands still, and brokers have news to tell in time."""
    if any(state.retirement.has_news for state in states.values()):
        return Verdict("tables", "unknown", 0)
    homes = {client: name for name, state in states.items() for client in state.guests}
    masks, faults = Masks(probes), list[str]()
    advertisements = {name: _by_client(state.routing.srt) for name, state in states.items()}
    subscriptions = {name: _by_client(state.routing.prt) for name, state in states.items()}
    for state in states.values():
        faults += [f"{state.id} {text}" for text in (*_strangers(state, homes), *_unfinished(state))]
        faults += [
            f"{state.id} {text}"
            for text in _without_effect(state, masks, advertisements[state.id], subscriptions[state.id])
        ]
    for client, home in homes.items():
        known = _of(advertisements, home, client)
        spoken = masks.admitted_by(states[home].guests[client].space.contains)
        if wrong := spoken ^ masks.fold(known)[0]:
            faults.append(f"{home} has two opinions on what {client} advertises: {masks.words(wrong)}")
        for broker, nearer in _away_from(home, states):
            pair = f"{broker} and {nearer} do not agree on what {client}"
            if wrong := masks.fold(_of(advertisements, broker, client))[0] ^ masks.fold(known)[0]:
                faults.append(f"{pair} advertises: {masks.words(wrong)}")
            here, there = _of(subscriptions, broker, client), _of(subscriptions, nearer, client)
            unsent = {r.stamp for r in there if not states[nearer].routing.was_sent(r, broker_hop(broker))}
            if wrong := _disagreement(masks, here, there, unsent):
                faults.append(f"{pair} subscribes to: {masks.words(wrong)}")
            faults += [
                f"{broker} still has {_words(record)}, and {nearer} not"
                for record in _orphans(masks, here, there)
                if states[broker].routing.prt.is_void(record)
            ]
    checked = len(homes) * len(states)
    return Verdict(
        "tables", "invalid" if faults else "valid" if checked else "unknown", checked, tuple(faults)
    )


class Masks:
    """Which of some events filters contain."""

    def __init__(self, probes: Sequence[Event]) -> None:
        self._probes = probes
        self._known: dict[Filter, Bits] = {}

    def of(self, filter_: Filter) -> Bits:
        mask = self._known.get(filter_)
        if mask is None:
            mask = self._known[filter_] = self.admitted_by(lambda event: contains(filter_, event))
        return mask

    def admitted_by(self, test: Callable[[Event], bool]) -> Bits:
        return sum(1 << place for place, event in enumerate(self._probes) if test(event))

    def fold(self, records: Sequence[Record], unsent: Collection[Stamp] = ()) -> tuple[Bits, Bits]:
        """The events that a client has: the newest record decides. And those that it decides by one of `unsent`."""
        has = decided = by_unsent = 0
        for record in reversed(records):
            new = self.of(record.filter) & ~decided
            decided |= new
            if record.positive:
                has |= new
            if record.stamp in unsent:
                by_unsent |= new
        return has, by_unsent

    def covers(self, one: Record, other: Record) -> bool:
        """Whether the one contains all events that the other does."""
        return not self.of(other.filter) & ~self.of(one.filter)

    def words(self, bits: Bits) -> str:
        chosen = [event for place, event in enumerate(self._probes) if bits >> place & 1]
        return ", ".join(" ".join(f"{name}={value}" for name, value in event.items()) for event in chosen)


def _disagreement(
    masks: Masks, here: Sequence[Record], there: Sequence[Record], unsent: Collection[Stamp]
) -> Bits:
    """On a client's subscriptions, with the neighbour that is nearer to it; what is fetched when it is wanted is none."""
    has, _ = masks.fold(here)
    had, by_unsent = masks.fold(there, unsent)
    return (has ^ had) & ~by_unsent


def _orphans(masks: Masks, here: Sequence[Record], there: Sequence[Record]) -> Iterator[Record]:
    """Records without effect that a neighbour nearer to their client has dropped.

    Not without effect is what a newer one hides here and not everywhere that it has gone, and what hides such a one;
    nor what alone is left here of two that say the same, of which the neighbour has kept the older.
    """
    known = {record.stamp for record in there}
    has, _ = masks.fold(here)
    for place, record in enumerate(here):
        if record.stamp in known:
            continue
        mask, older, newer = masks.of(record.filter), here[:place], here[place + 1 :]
        is_hidden = any(subsumes(n.filter, record.filter) for n in newer)
        if (
            masks.fold([*older, *newer])[0] == has
            and not is_hidden
            and not any(masks.of(o.filter) & mask and o.positive != record.positive for o in older)
        ):
            yield record


def _strangers(state: BrokerState, homes: Mapping[str, str]) -> Iterator[str]:
    """Clients that are not where they are said to be, and records that come from elsewhere than their clients."""
    hops = state.crt.hops
    if hops.keys() != homes.keys():
        yield f"knows of the clients {sorted(hops)}, and there are {sorted(homes)}"
    for hop, record in (*state.routing.srt, *state.routing.prt):
        if hops.get(record.client) != hop:
            yield f"has a record of {record.client} from {hop}, and the client lies by {hops.get(record.client)}"
    for client in state.routing.compaction.floors.keys() - state.guests.keys():
        yield f"remembers what was dropped of {client}, who is no client of it"


def _unfinished(state: BrokerState) -> Iterator[str]:
    """What should be over."""
    for tx in (*state.retirement.written, *state.routing.veiled):
        yield f"does not know that {tx} is over"
    for candidate in (c for group in state.routing.compaction.waiting() for c in group):
        yield f"has not tidied up a {candidate.kind} of {candidate.client}"


def _without_effect(state: BrokerState, masks: Masks, own: Known, known: Known) -> Iterator[str]:
    """Records that compaction should have taken, by the broker's own tables; `own` are advertisements."""
    prt = state.routing.prt
    for records in known.values():
        has, is_home = masks.fold(records)[0], records[0].client in state.guests
        for place, record in enumerate(records):
            newer = records[place + 1 :]
            if not record.sent and any(masks.covers(n, record) for n in newer) and prt.is_hidden(record):
                yield f"still has {_words(record)}, and a newer record hides it"
            elif is_home and masks.fold([*records[:place], *newer])[0] == has and prt.is_void(record):
                yield f"still has {_words(record)}, which has no effect"
    for records in own.values():
        for place, record in enumerate(records):
            if any(
                masks.covers(n, record) and subsumes(n.filter, record.filter) for n in records[place + 1 :]
            ):
                yield f"still has {_words(record)}, and a newer record hides it"


def _words(record: Record) -> str:
    return f"{record.kind} {record.filter} of {record.client}"


def _of(tables_: Mapping[str, Known], broker: str, client: str) -> Sequence[Record]:
    return tables_[broker].get(client, ())


def _by_client(table: Iterable[tuple[Hop, Record]]) -> Known:
    found: Known = {}
    for _, record in table:
        found.setdefault(record.client, []).append(record)
    for records in found.values():
        records.sort(key=stamp_of)
    return found


def _away_from(home: str, states: Mapping[str, BrokerState]) -> Iterator[tuple[str, str]]:
    """Every other broker, with its neighbour on the way home."""
    reached, queue = {home}, [home]
    while queue:
        near = queue.pop()
        for name in map(name_of, states[near].neighbours):
            if name not in reached:
                reached.add(name)
                queue.append(name)
                yield name, near
