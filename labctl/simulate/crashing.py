"""A world in which brokers crash, and go on where their journals end.

Each broker has a data folder on a disk that loses what was not synced. It is ended at any moment, or in the middle of an
operation of its disk; what it was then is gone, its connections are cut, and after a pause another process is made from
the folder by what the server uses (`broker.sessions.saved`). Links and clients go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any

from broker.core import Broker
from broker.gate import ledger
from broker.journal.failures import JournalFailed, SnapshotFailed
from broker.journal.folder import Folder
from broker.protocol.hops import Hop, name_of
from broker.routing.ready import Notice
from broker.sessions.greeting import Departed
from broker.sessions.saved import freeze, recover, thaw, whole_state
from labctl.checks.verdict import Verdict
from labctl.simulate import snapshot
from labctl.simulate.clients import SimClient
from labctl.simulate.connections import End
from labctl.simulate.crashes.disk import Crashed
from labctl.simulate.crashes.machine import SimMachine
from labctl.simulate.linked import LinkedWorld
from labctl.simulate.nodes import BrokerNode
from labctl.simulate.programs.programs import ClockSkew, Journals, Restart
from labctl.simulate.world import Tree

AWAY = 0.15
"""So many clients of a broker that has crashed stay away for a while, perhaps for too long."""


class DurableNode(BrokerNode):
    """A broker's process that keeps a journal."""

    def __init__(
        self, world: CrashingWorld, broker: Broker, folder: Folder, departed: Departed | None = None
    ) -> None:
        self.folder = folder
        self.machine = world.machines[broker.id]
        self._told = world.told[broker.id]
        self.passed_over = 0
        """So many notices will be told that have been told."""
        self._is_writing = False
        super().__init__(world, broker, departed)
        self.world: CrashingWorld = world
        self.presence.incarnation = folder.life

    def time(self) -> float:
        return self.world.time_at(self.broker) - self.machine.behind_s

    @property
    def entry(self) -> int:
        return self.folder.newest

    def announce(self) -> None:
        """For the first time."""
        self.live()

    def live(self) -> None:
        """From now on, what it is given is entered."""
        self.transit.keep_journal(self.folder, self)
        if self.folder.newest:
            self.presence.wait_for_all()
        else:
            self.transit.begin(ledger.FirstEntry(self.transit.time(), b""), self.core.start())

    def go_on(self, saved: Any, lines: int) -> None:
        """Where the journal ends."""
        self.is_recovering = True
        self.passed_over = len(self._told) - lines
        entries = self.folder.entries()
        recover(self.transit, self.core, saved, entries, self.presence, lambda made_of: None)
        self.is_recovering = False
        if self.passed_over:
            fault = f"{self.hop} has told {self.passed_over} things that it does not know any more"
            self.world.account.crash_faults.append(fault)

    # The journal

    def sync_soon(self, sync: Callable[[], None]) -> None:
        later_s = self.machine.sync_s()
        if later_s:
            self.clock.call_later(later_s, sync)
        else:
            self.clock.call_soon(sync)

    def journal_failed(self, error: JournalFailed) -> None:
        self.world.fell(self)

    def rested(self) -> None:
        if not self._is_writing and self.machine.takes_snapshot():
            self._is_writing = True
            number = self.folder.begin_snapshot()
            state = freeze(whole_state(self.broker, self.presence, len(self._told)))
            self.clock.call_later(self.machine.later_s(), self._write, number, state)

    def _write(self, number: int, state: bytes) -> None:
        try:
            self.folder.write_snapshot(number, [state])
        except SnapshotFailed:
            self.clock.call_later(
                self.machine.later_s(), self._end_snapshot, self.folder.drop_snapshot, number
            )
        else:
            self.clock.call_later(
                self.machine.later_s(), self._end_snapshot, self.folder.adopt_snapshot, number
            )

    def _end_snapshot(self, end: Callable[[int], None], number: int) -> None:
        self._is_writing = False
        try:
            end(number)
        except JournalFailed as error:
            self.journal_failed(error)

    # What the transit tells

    def happened(self, notice: Notice) -> None:
        told = (notice.name, notice.fields)
        if self.passed_over:
            before = self._told[-self.passed_over]
            self.passed_over -= 1
            if before != told:
                self.world.account.crash_faults.append(f"{self.hop} tells {told} now, and told {before}")
            self._part_with_refused(notice)
            return
        self._told.append(told)
        super().happened(notice)


class CrashingWorld(LinkedWorld):
    def __init__(
        self,
        links: Tree,
        brokers: Iterable[str] = (),
        seed: int = 0,
        *arguments: Any,
        journals: Journals,
        clocks: Mapping[str, ClockSkew] | None = None,
        **named: Any,
    ) -> None:
        self._journals = journals
        self._clocks = clocks or {}
        self.grace_ms = 1e3 * journals.grace_s
        self.machines: dict[str, SimMachine] = {}
        self.told: dict[str, list[tuple[str, Any]]] = {}
        """What each broker has noted, as a file outlives its process."""
        self.restarts = 0
        self._seed = seed
        self._down: dict[str, Restart] = {}
        self._luck = Random(f"crashes {seed}")
        super().__init__(links, brokers, seed, *arguments, **named)

    def make_node(self, broker: Broker) -> BrokerNode:
        self.watch = self._wrote
        self.told[broker.id] = []
        self.machines[broker.id] = machine = SimMachine(broker.id, self._journals, self._seed)
        return DurableNode(self, broker, machine.open(broker.incarnation))

    def time_at(self, broker: Broker) -> float:
        """As long as the world lives: a journal would not forget that a clock has been set."""
        clock = self._clocks.get(broker.id)
        return self.now if clock is None else clock.offset_s + clock.rate * self.now

    def verdicts(self) -> list[Verdict]:
        account = self.account
        faults = account.crash_faults
        judged = Verdict("recovery", "invalid" if faults else "valid", account.recovered, tuple(faults[:3]))
        return [*super().verdicts(), judged]

    def _wrote(self, end: End, data: bytes) -> None:
        one, other = end.holder, end.other.holder
        incarnation = getattr(one, "incarnation", 0) or getattr(other, "incarnation", 0)
        self.account.wrote(one.hop, other.hop, incarnation, data)

    # Crashes

    def step(self) -> bool:
        try:
            return super().step()
        except Crashed:
            for node in self.nodes.values():
                if isinstance(node, DurableNode) and node.machine.disk.has_stopped:
                    self.fell(node)
            return True

    def strike(self, restart: Restart) -> None:
        node = self.nodes[restart.broker]
        assert isinstance(node, DurableNode)
        if not node.is_alive or node.machine.is_doomed:
            return
        self._down[restart.broker] = restart
        if restart.operations:
            node.machine.plan(restart)
        else:
            self.fell(node)

    def calm(self) -> None:
        """Nobody falls any more who has not yet."""
        for machine in self.machines.values():
            machine.spare()

    def fell(self, node: DurableNode) -> None:
        """Its process has ended."""
        restart = self._down[node.broker.id]
        if not node.is_alive:
            return
        node.is_alive = False
        self.restarts += 1
        node.machine.end(restart)
        for link in tuple(self._connections):
            if node.hop in link:
                self.cut(link, restart.pause_s)
                for way in (link, link[::-1]):
                    again = self.now + restart.pause_s
                    self._restored[way] = max(again, self._restored.get(way, 0.0))
        for client in self.clients.values():
            if client.home == node.broker.id and client.is_alive and self._luck.random() < AWAY:
                client.go_away(restart.pause_s + 2 * self._journals.grace_s * self._luck.random())
        self.at(self.now + restart.pause_s, self._start_again, node, restart.again)

    def _start_again(self, before: DurableNode, again: int) -> None:
        """`again`: instead of this operation of its disk the process ends once more."""
        name, machine, restart = before.broker.id, before.machine, self._down[before.broker.id]
        if again:
            machine.disk.stop_before = machine.disk.operations + again
        try:
            node = self._recovered(before)
        except Crashed:
            machine.end(restart)
            self.at(self.now + restart.pause_s, self._start_again, before, 0)
            return
        machine.disk.stop_before = None
        del self._down[name]
        node.live()
        node.transit.flush()
        for hop in node.dialled:
            self.when_restored((node.hop, hop), node.dial)

    def _recovered(self, before: DurableNode) -> DurableNode:
        name, broker = before.broker.id, before.broker
        folder = before.machine.open(before.folder.life)
        saved = thaw(folder.snapshot)
        if saved is None:
            neighbours = list(map(name_of, broker.neighbours))
            core = Broker(name, neighbours, folder.life, broker.routing.overlap, broker.limits)
            core.state.keeps_history = True
        else:
            core = saved.core
        node = DurableNode(self, core, folder, None if saved is None else saved.departed)
        node.dialled = before.dialled
        try:
            node.go_on(saved, 0 if saved is None else saved.lines)
        except Crashed:
            node.is_alive = False
            raise
        self.account.crashed(node.hop, folder.newest)
        self.account.compare(node.hop, node.transit.peers)
        if folder.newest == before.folder.newest and snapshot.of_broker(core) != snapshot.of_broker(broker):
            self.account.crash_faults.append(f"{node.hop} is not what it was")
        if folder.newest < before.folder.durable:
            fault = f"{node.hop} has lost the entries behind {folder.newest}: {before.folder.durable} were durable"
            self.account.crash_faults.append(fault)
        self.nodes[name], self.brokers[name], self._by_hop[node.hop] = node, core, core
        return node

    # What depends on who is here

    def bring_back(self, client: str, home: str, *arguments: Any) -> SimClient | None:
        return super().bring_back(client, home, *arguments) if self.nodes[home].is_alive else None

    def connected(self, dialler: Any, hop: Hop) -> End:
        """Where nobody is, the connection is lost as soon as it is made."""
        end = super().connected(dialler, hop)
        if not self.nodes[name_of(hop)].is_alive:
            self.cut((dialler.hop, hop))
        return end
