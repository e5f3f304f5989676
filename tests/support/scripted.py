"""Small worlds in which every delay is written down: schedules to order, for transcripts and counterexamples.

Time counts in link crossings: each takes one unless the script says otherwise, and no node needs any
time for itself. So one script is one schedule.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from itertools import pairwise
from random import Random
from typing import Any

from broker.protocol import events
from broker.protocol.filters import Event
from broker.protocol.hops import Hop, name_of
from broker.protocol.vocabulary import Protocol
from client.core.errors import ClientError
from client.core.transactions import Frame, Tcm, Transaction
from labctl.checks import properties
from labctl.checks.history import History, read
from labctl.checks.quiet.tables import tables
from labctl.simulate.clients import SimClient
from labctl.simulate.epilogue import last_words
from labctl.simulate.programs.programs import Op, as_plan, perform
from labctl.simulate.runner import regular
from labctl.simulate.world import World

CROSSING_S = 2**-10
"""A power of two: sums of it are exact, so that equal times are equal."""
VALUES = (0, 1, 2, 3)

Tree = Sequence[tuple[str, str]]


def sub(*values: int) -> Op:
    return Op("sub", values=values)


def usub(*values: int) -> Op:
    return Op("usub", values=values)


def adv(*values: int) -> Op:
    return Op("adv", values=values)


def uadv(*values: int) -> Op:
    return Op("uadv", values=values)


def pub(value: int) -> Op:
    return Op("pub", values=(value,))


def ask(client: str, *body: Op) -> Op:
    """A `tcm` to one client, which answers with these operations."""
    return Op("tcm", to=client, nested=((client, body),))


def call(value: int, **bodies: Sequence[Op]) -> Op:
    """A `tcm` to whoever subscribes to a point of the data space; not in a plan."""
    return Op("tcm", values=(value,), nested=tuple((client, tuple(body)) for client, body in bodies.items()))


def line(*brokers: str) -> Tree:
    return tuple(pairwise(brokers))


class Started:
    """A transaction of a script."""

    def __init__(self, client: str, protocol: Protocol, body: tuple[Op, ...]) -> None:
        self.client = client
        self.protocol = protocol
        self.body = body
        self.tx = ""
        self.transaction: Transaction | None = None
        """Of a protocol without a plan."""
        self.began = -1.0
        self.ended = -1.0
        """In crossings, when its coordinator knew."""


class Script:
    """What happens when; then `run`, and look at what has become of it."""

    def __init__(
        self,
        links: Tree,
        homes: Mapping[str, str],
        setup: Iterable[tuple[str, Op]] = (),
        traces: bool = False,
    ) -> None:
        self._delays: dict[str, float] = {}
        brokers = {name for link in links for name in link} | set(homes.values())
        self.world = World(links, brokers, latency=self._latency, traces=traces)
        self.homes = dict(homes)
        self.errors: list[str] = []
        self._asked: list[Op] = []
        for client, home in homes.items():
            self.world.connect(client, home, self._on_tcm)
        self.world.run()
        for client in homes:
            self.world.complete(_introduce(self.world.clients[client]))
        for client, op in setup:
            self.world.complete(regular(self.world.clients[client], op))
        for client in homes:
            self.world.record(client, events.STARTED, {})
        self.start = self.world.now
        self.messages_before = self.world.messages - self.world.tidying
        self.passages_before = len(self.world.passages)

    # Writing it

    def slow(self, delays: Mapping[str, float], at: float = 0.0) -> None:
        """From a time on, links ("b1>b2", "E>b1") take so many crossings for each message."""
        self.world.at(self._time(at), lambda: self._delays.update(delays))

    def transaction(
        self, client: str, protocol: Protocol, *body: Op, at: float = 0.0, aborts_at: float | None = None
    ) -> Started:
        started = Started(client, protocol, body)
        self._spawn(at, self._transact(started))
        if aborts_at is not None:
            self.world.at(self._time(aborts_at), lambda: self._abort(started))
        return started

    def regular(self, client: str, *body: Op, at: float = 0.0) -> None:
        self._spawn(at, self._regular(client, body))

    def crash(self, client: str, at: float, lost: int = 0) -> None:
        """Its last `lost` messages are lost with it."""
        self.world.at(self._time(at), lambda: self.world.clients[client].crash(lost))

    def come_back(self, client: str, at: float, home: str = "", twin_at: str = "") -> None:
        """A client that is gone connects again with its id, where it was or elsewhere, as soon as it is let in.

        `twin_at`: at this broker another one wants the same id.
        """
        self.world.at(self._time(at), lambda: self._bring_back(client, home))
        if twin_at:
            self.world.at(self._time(at), lambda: self._bring_twin(client, twin_at))

    # Reading it

    def run(self) -> Script:
        self.world.run()
        return self

    @property
    def messages(self) -> int:
        """Without those by which brokers tidy up behind transactions."""
        return self.world.messages - self.world.tidying - self.messages_before

    @property
    def history(self) -> History:
        return read(self.world.moments)

    def outcome(self, started: Started) -> str:
        """As its coordinator was told; empty: it never was."""
        return self.history.transactions[started.tx].outcome

    def reason(self, started: Started) -> str:
        return self.history.transactions[started.tx].reason

    def got(self, client: str) -> list[int]:
        """The points of the data space that were delivered to a client, in order."""
        return [int(publication.event["x"]) for publication, _ in self.world.clients[client].deliveries]

    def asked(self, started: Started) -> dict[str, set[str]]:
        """Who got the control messages of a transaction, by their events."""
        operations = self.history.transactions[started.tx].operations.values()
        return {str(o.event): set(o.receivers) for o in operations if o.kind == "tcm"}

    def reaches(self, publisher: str, value: int) -> set[str]:
        """Who would get an event now."""
        hop = f"client:{publisher}"
        return self._walk(self.homes[publisher], hop, {"s": "d", "x": value})

    def faults(self) -> list[tuple[str, str]]:
        """Everything that the checks object to, and everything that should not be there any more."""
        history, brokers = self.history, self.world.brokers
        probes: list[Event] = [{"s": "d", "x": value} for value in VALUES]
        probes += [{"s": "c", "to": client} for client in self.homes]
        verdicts = [
            properties.atomicity(history, tuple(brokers)),
            properties.answers_given(history, tuple(brokers)),
            properties.consistency(history),
            properties.serializability(history),
            properties.recipients(history),
            properties.convergence(
                history, lambda broker, event, hop: brokers[broker].routing.next_hops(event, hop), probes
            ),
            properties.liveness(history, [*self.errors, *self.residue()]),
            tables({name: broker.state for name, broker in brokers.items()}, probes),
            properties.last_act(history, last_words(self.world, probes), tuple(brokers)),
        ]
        return [(verdict.property, text) for verdict in verdicts for text in verdict.faults]

    def residue(self) -> list[str]:
        left = [f"{s.broker} could not place {s.message} of {s.source}" for s in self.world.strays]
        for broker in self.world.brokers.values():
            open_ = broker.transactions
            left += [f"{broker.id} still has {tx}" for tx in open_]
            records = [r for table in (broker.routing.srt, broker.routing.prt) for _, r in table]
            left += [f"{broker.id} still has a record of {r.tag or r.writer}" for r in records if r.tag]
        for client in self.world.clients.values():
            if client.is_alive:
                open_at = (*client.transactions.parts, *client.plans.running)
                left += [f"client {client.client_id} still has {tx}" for tx in open_at]
        return left

    def tables(self) -> dict[str, list[str]]:
        """What every broker has in its tables, as text."""
        found = {}
        for broker in self.world.brokers.values():
            routing = broker.routing
            records = [(hop, r) for table in (routing.srt, routing.prt) for hop, r in table]
            found[broker.id] = sorted(
                f"{r.kind} {r.filter} of {r.client} by {hop}, {r.stamp}" for hop, r in records
            )
        return found

    # How it is done

    def _time(self, at: float) -> float:
        return self.start + at * CROSSING_S

    def _now(self) -> float:
        return (self.world.now - self.start) / CROSSING_S

    def _latency(self, random: Random, source: Hop, target: Hop) -> float:
        return self._delays.get(f"{name_of(source)}>{name_of(target)}", 1.0) * CROSSING_S

    def _spawn(self, at: float, work: Coroutine[Any, Any, None]) -> None:
        def begin() -> None:
            self.world.spawn(work)

        self.world.at(self._time(at), begin)

    async def _transact(self, started: Started) -> None:
        client = self.world.clients[started.client]
        started.began = self._now()
        try:
            if started.protocol in ("s-tx", "s-tx-safe"):
                number = client.transactions.number + 1
                started.tx = f"{client.client_id}/{client.transactions.incarnation}/{number}"
                await client.execute(as_plan(started.body), started.protocol)
            else:
                await self._dynamic(client, started)
        except ClientError:
            pass  # how it ended stands in the history
        except Exception as error:  # noqa: BLE001 reported with the other faults
            self.errors.append(f"{type(error).__name__}: {error}")
        started.ended = self._now()

    async def _dynamic(self, client: SimClient, started: Started) -> None:
        transaction = client.transactions.begin(started.protocol, lifetime_s=60)  # type: ignore[arg-type]
        started.tx, started.transaction = transaction.tx, transaction
        async with transaction as tx:
            for op in started.body:
                await perform(tx, op, self._label(op))

    def _bring_back(self, client: str, home: str) -> None:
        self.homes[client] = home or self.homes[client]
        back = self.world.bring_back(client, self.homes[client], self._on_tcm)
        if back is None:
            self.world.at(self.world.now + CROSSING_S / 4, lambda: self._bring_back(client, home))
        else:
            self.world.spawn(_settle_in(back))

    def _bring_twin(self, client: str, home: str) -> None:
        twin = self.world.bring_back(client, home, self._on_tcm, is_twin=True)
        assert twin is not None, f"{home} has heard of {client}"
        self.world.spawn(_settle_in(twin))

    def _label(self, op: Op) -> bytes:
        self._asked.append(op)
        return str(len(self._asked) - 1).encode()

    async def _on_tcm(self, client: SimClient, tcm: Tcm, frame: Frame) -> None:
        for op in self._asked[int(tcm.payload)].reaction(client.client_id):
            await perform(frame, op, self._label(op))

    def _abort(self, started: Started) -> None:
        client = self.world.clients[started.client]
        if started.transaction is None:
            client.plans.abort(started.tx, "by script")
        else:
            client.spawn(started.transaction.abort("by script"))

    async def _regular(self, client: str, body: Iterable[Op]) -> None:
        await self.world.clients[client].arrived()
        for op in body:
            await regular(self.world.clients[client], op)

    def _walk(self, broker: str, source: Hop, event: Event) -> set[str]:
        reached: set[str] = set()
        for hop in self.world.brokers[broker].routing.next_hops(event, source):
            if hop.startswith("client:"):
                reached.add(name_of(hop))
            else:
                reached |= self._walk(name_of(hop), f"broker:{broker}", event)
        return reached


async def _settle_in(client: SimClient) -> None:
    await client.arrived()
    await _introduce(client)


async def _introduce(client: SimClient) -> None:
    """Everybody can ask everybody: the control space shares an attribute with the data space, not a value."""
    await client.advertise({"s": "c"})
    await client.subscribe({"s": "c", "to": client.client_id})
