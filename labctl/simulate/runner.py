"""Run a program in a world, and judge it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import Any

from msgspec import Struct

from broker.protocol import events
from broker.protocol.filters import Event
from broker.protocol.hops import Hop
from broker.protocol.vocabulary import PLANNED
from client.core.errors import ClientError, SessionClosed
from client.core.transactions import Frame, Tcm
from labctl.checks import properties
from labctl.checks.beside import LastWord
from labctl.checks.history import History, read
from labctl.checks.quiet.tables import tables
from labctl.checks.verdict import Verdict
from labctl.simulate.clients import SimClient
from labctl.simulate.crashing import CrashingWorld
from labctl.simulate.epilogue import last_words
from labctl.simulate.linked import LinkedWorld
from labctl.simulate.programs.generate import VALUES
from labctl.simulate.programs.programs import (
    Cut,
    Fault,
    Op,
    Program,
    RegularProgram,
    Restart,
    TxProgram,
    as_plan,
    label_of,
    labelled,
    perform,
    say,
)
from labctl.simulate.world import World

MakeWorld = Callable[..., World]

DELAY_MS = 1.0
DEFAULT_RATE = 1e3 / DELAY_MS
STEPS_MAX = 200_000
CROSSINGS_MAX = 100
"""Of links, one after the other, in a transaction of the programs here."""
AGAIN_S = 1e-3
"""So long a client waits that was refused because its id is in use."""


class SimResult(Struct):
    world: World
    history: History
    verdicts: list[Verdict]
    messages: int

    @property
    def faults(self) -> list[tuple[str, str]]:
        return [(v.property, text) for v in self.verdicts for text in v.faults]


def _world_of(program: Program) -> MakeWorld:
    """The kind of world that it needs."""
    if not program.window_bytes:
        return World
    limits: dict[str, Any] = {
        "window_bytes": program.window_bytes,
        "queue_bytes_max": program.queue_bytes_max,
    }
    if program.journals is None:
        return partial(LinkedWorld, **limits)
    return partial(CrashingWorld, **limits, journals=program.journals, clocks=program.conditions.clocks)


class SimRun:
    def __init__(self, program: Program, traces: bool = False, make_world: MakeWorld | None = None) -> None:
        self._program = program
        self._tcms = labelled(program)
        self._draw = program.delays.draw()
        self._rates = {tuple(link.split(">")): 1e3 / mean_ms for link, mean_ms in program.slowness.items()}
        make_world = make_world or _world_of(program)
        conditions = program.conditions
        self.world = make_world(
            program.links, program.brokers, program.seed, self._latency, conditions.overlap,
            conditions.limits, traces=traces,
        )  # fmt: skip
        self.world.live_under(conditions)
        self.errors: list[str] = []
        self.told: dict[str, str] = {}
        """By transaction, how it ended, as its program was told when that could wait no longer."""

    def execute(self) -> SimResult:
        self.prepare()
        before = self.world.messages
        self.play()
        return self.judge(self.world.messages - before)

    def follow(self, program: Program) -> None:
        """Another program for the same clients, in the same world."""
        self._program, self._tcms = program, labelled(program)
        self.play()

    def play(self) -> None:
        """Everything that the program does, until nothing is under way any more."""
        world, program, start = self.world, self._program, self.world.now
        for number, transaction in enumerate(program.transactions):
            world.at(start + transaction.start, self.begin, number, transaction)
        for piece in program.regular:
            world.at(start + piece.start, self.begin_regular, piece)
        for fault in program.faults:
            world.at(start + fault.time, self.strike, fault)
        for cut in program.cuts:
            world.at(start + cut.time, self.cut, cut)
        for restart in program.restarts:
            world.at(start + restart.time, self.end, restart)
        try:
            world.run(STEPS_MAX)
        except RuntimeError as error:
            self.errors.append(str(error))
        if isinstance(world, CrashingWorld):
            world.calm()

    def prepare(self) -> None:
        """Bring clients and their first operations into the world."""
        world, program = self.world, self._program
        for client, home in program.homes.items():
            world.connect(client, home, self.answer)
        world.run(STEPS_MAX)
        for client in program.homes:
            world.complete(self.introduce(world.clients[client]))
        for client, op in program.setup:
            world.complete(regular(world.clients[client], op))
        for client in program.homes:
            world.record(client, events.STARTED, {})
            world.clients[client].wait_at_most(program.conditions.timeout_s)
        world.passages.clear()

    # What a program does, each piece by itself

    def begin(self, number: int, transaction: TxProgram) -> None:
        self.world.spawn(self.transact(number, transaction))

    def begin_regular(self, piece: RegularProgram) -> None:
        self.world.spawn(self._regular(piece))

    def strike(self, fault: Fault) -> None:
        client = self.world.clients[fault.client]
        if fault.kind == "crash":
            client.crash(fault.lost)
        elif fault.kind == "leave":
            client.leave()
        else:
            client.go_away(0.01)
            return
        if fault.back_after:
            self.world.at(self.world.now + fault.back_after, self.bring_back, fault)

    def bring_back(self, fault: Fault) -> None:
        """A client comes back with its id, as soon as the broker lets it in."""
        world, old = self.world, self.world.clients[fault.client]
        if old.is_alive:
            return
        home = fault.back_at if fault.back_at in world.brokers else old.home
        client = world.bring_back(fault.client, home, self.answer)
        if client is None:
            world.at(world.now + AGAIN_S, self.bring_back, fault)
            return
        world.spawn(self._settle_in(client))
        if fault.twin_at in world.brokers and fault.twin_at != home and world.takes_twins:
            twin = world.bring_back(fault.client, fault.twin_at, self.answer, is_twin=True)
            if twin is not None:
                world.spawn(self._settle_in(twin))

    async def _settle_in(self, client: SimClient) -> None:
        try:
            await client.arrived()
            await self.introduce(client)
            client.wait_at_most(self._program.conditions.timeout_s)
        except ClientError:
            pass  # it is gone again

    def cut(self, cut: Cut) -> None:
        if isinstance(self.world, LinkedWorld):
            one, _, other = cut.link.partition(">")
            self.world.cut((one, other), cut.seconds)

    def end(self, restart: Restart) -> None:
        if isinstance(self.world, CrashingWorld):
            self.world.strike(restart)

    async def introduce(self, client: SimClient) -> None:
        """Everybody can ask everybody."""
        await client.advertise({"s": "c"})
        await client.subscribe({"s": "c", "to": client.client_id})

    async def transact(self, number: int, program: TxProgram) -> None:
        client = self.world.clients[program.coordinator]
        if not client.is_alive:
            return
        try:
            await client.arrived()
            if program.protocol in PLANNED:
                await self._plan(client, program)
            else:
                await self._dynamic(client, number, program)
        except ClientError:
            pass  # how it ended stands in the history
        except Exception as error:  # noqa: BLE001 a defect of ours, to be reported with the seed
            self.errors.append(f"{type(error).__name__}: {error}")

    async def _dynamic(self, client: SimClient, number: int, program: TxProgram) -> None:
        transaction = client.transactions.begin(program.protocol, lifetime_s=program.lifetime_ms / 1e3)  # type: ignore[arg-type]
        try:
            async with transaction as tx:
                for place, op in enumerate(program.body):
                    if place == program.aborts_after:
                        break
                    await perform(tx, op, label_of(str(number), place))
                if program.aborts_after >= 0:
                    await tx.abort("by program")
        finally:
            if transaction.outcome is not None:
                self.told[transaction.tx] = transaction.outcome.state

    async def _plan(self, client: SimClient, program: TxProgram) -> None:
        plan = as_plan(program.body)
        if not plan.items:
            return
        number = client.transactions.number + 1
        tx = f"{client.client_id}/{client.transactions.incarnation}/{number}"
        if program.aborts_after >= 0:
            delay = program.aborts_after * DELAY_MS * 3e-3
            self.world.at(self.world.now + delay, lambda: client.plans.abort(tx, "by program"))
        outcome = await client.execute(plan, program.protocol)  # type: ignore[arg-type]
        self.told[tx] = outcome.state

    async def answer(self, client: SimClient, tcm: Tcm, frame: Frame) -> None:
        op = self._tcms[tcm.payload]
        for place, reaction in enumerate(op.reaction(client.client_id)):
            label = label_of(f"{tcm.payload.decode()}.{self._who(op, client.client_id)}", place)
            await perform(frame, reaction, label)

    @staticmethod
    def _who(op: Op, client: str) -> str:
        return client if client in dict(op.nested) else "*"

    async def _regular(self, piece: RegularProgram) -> None:
        client = self.world.clients[piece.client]
        try:
            await client.arrived()
            for op in piece.body:
                await regular(client, op)
        except ClientError:
            pass  # refused, or gone

    def _latency(self, random: Random, source: Hop, target: Hop) -> float:
        return self._draw(random, self._rates.get((source, target), DEFAULT_RATE))

    # Judgement

    def judge(self, messages: int) -> SimResult:
        world, program = self.world, self._program
        history = read(world.moments)
        states = {name: broker.state for name, broker in world.brokers.items()}
        probes = self._probes()
        verdicts = [
            properties.atomicity(history, program.brokers),
            properties.answers_given(history, program.brokers, self.told),
            properties.consistency(history),
            properties.serializability(history),
            properties.recipients(history),
            properties.convergence(history, self._route, probes),
            properties.liveness(
                history, [*self.errors, *self.left()], program.conditions.overlap, self._is_patient()
            ),
            tables(states, probes),
            properties.last_act(history, self._last_words(probes), program.brokers),
        ]
        if isinstance(world, LinkedWorld):
            verdicts += world.verdicts()
        return SimResult(world, history, verdicts, messages)

    def _is_patient(self) -> bool:
        """Whether no transaction can have been slow by delays alone, nor by those that it waited for."""
        program, limits = self._program, self._program.conditions.limits
        lifetimes = [limits.plan_lifetime_ms, *(t.lifetime_ms for t in program.transactions)]
        crossings = CROSSINGS_MAX * max(1, len(program.transactions))
        is_away = any(fault.kind == "away" for fault in program.faults) or program.window_bytes
        return not is_away and crossings * self.world.longest_s < min(lifetimes) / 1e3

    def _last_words(self, probes: list[Event]) -> list[LastWord]:
        """None where it is not quiet after all the time there is."""
        return [] if self.errors else last_words(self.world, probes)

    def _route(self, broker: str, event: Event, source: Hop) -> Iterable[Hop]:
        return self.world.brokers[broker].routing.next_hops(event, source)

    def _probes(self) -> list[Event]:
        data: list[Event] = [{"s": space, "x": value} for space in self._program.spaces for value in VALUES]
        return data + [{"s": "c", "to": client} for client in self._program.homes]

    def left(self) -> Iterable[str]:
        """What should not be there any more."""
        for stray in self.world.strays:
            yield f"{stray.broker} could not place a {type(stray.message).__name__} from {stray.source}: {stray.error}"
        for broker in self.world.brokers.values():
            for tx in broker.transactions:
                yield f"{broker.id} still has {tx}"
            tagged = [r for _, r in broker.routing.srt if r.tag] + [r for _, r in broker.routing.prt if r.tag]
            for record in tagged:
                yield f"{broker.id} still has a record of {record.tag}"
        for client in self.world.clients.values():
            for tx in (*client.transactions.parts, *client.plans.running):
                if client.is_alive:
                    yield f"client {client.client_id} still has {tx}"


async def regular(client: SimClient, op: Op) -> None:
    try:
        await say(client, op)
    except SessionClosed:
        raise
    except ClientError:
        pass  # a publication that is not advertised


def simulate(program: Program, traces: bool = False) -> SimResult:
    return SimRun(program, traces).execute()
