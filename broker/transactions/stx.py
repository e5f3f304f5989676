"""S-TX at a broker (Section 6, corrected): steps wait for the steps before them; pure.

The coordinator knows the whole plan. Each step carries what comes before it, and a broker holds it back
until everything that will reach this broker has; advertisements alone are never held back. The commit
waits like a step that comes last. Records stand in the tables at once, under the transaction's tag: a
commit takes the tag off, an abort takes the records out. With `safe`, a round of votes comes first.

A step that will never come, because whoever owes it is gone, is declared void, so that nobody waits.
docs/protocols.md has the reasons for each rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from broker.hops import Hop, client_hop, is_client, name_of
from broker.records import Record
from broker.site import ProtocolError, Ready, Site
from broker.transactions.plan import Open, numbers_in
from broker.transactions.planning import fault_in, waits
from broker.transactions.registry import Registry
from broker.transactions.steps import Steps
from broker.transactions.wellformed import RECORD_KINDS, Checker
from broker.txmessages import (
    Before,
    Planned,
    Step,
    StepAbort,
    StepCommit,
    StepDone,
    StepEcho,
    StepEnded,
    StepFailed,
    StepPrepare,
    StepPrepared,
    StepVoid,
)
from broker.wire import Operation, brief


class Stx:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._routing = site.routing
        self._checker = Checker(site.limits)
        self._registry = Registry(site)
        self.open = self._registry.open
        self._steps = Steps(site, self.open, self._declare_void)
        self.from_client: dict[type, Callable[[str, Any], Ready]] = {
            Step: self._step_from_client,
            StepPrepare: self._term_from_client,
            StepCommit: self._term_from_client,
            StepAbort: self._abort_from_client,
            StepEnded: lambda client, message: self._ended(client_hop(client), message),
        }
        self.from_broker: dict[type, Callable[[Hop, Any], Ready]] = {
            Step: self._step_from_broker,
            StepEcho: self._echo,
            StepDone: self._steps.done,
            StepPrepare: self._term_from_broker,
            StepPrepared: self._prepared,
            StepCommit: self._term_from_broker,
            StepAbort: self._abort,
            StepEnded: self._ended,
            StepVoid: self._void,
        }

    def __bool__(self) -> bool:
        return bool(self.open)

    def __iter__(self) -> Iterator[Open]:
        return iter(self.open.values())

    # Steps

    def _step_from_client(self, client: str, message: Step) -> Ready:
        guest, planned = self._site.joined_guest(client), message.planned
        self._checker.check_step(planned, message.before)
        if planned.client != client:
            raise ProtocolError(f"{client} sent a step of {planned.client}")
        if self._registry.has_too_many(client, message):
            return self._registry.refuse(client, message.tx)
        state = self._registry.state_for(client, message.tx, message.coordinator)
        if state is None or state.status != "active":
            return Ready([], [])
        fault = self._fault(state, message)
        if fault:
            state.bad = state.bad or brief(fault)
            return Ready([(client_hop(state.coordinator), StepFailed(message.tx, state.bad))], [])
        if planned in state.owed.get(client, ()):
            state.owed[client].remove(planned)
        else:
            state.plan.update(numbers_in(planned))
        if planned.kind in RECORD_KINDS:
            message = replace(message, stamp=self._site.next_stamp(guest))
            guest.operations += 1
        return self._step(client_hop(client), message)

    def _fault(self, state: Open, message: Step) -> str:
        """What is wrong with a step, or with the plan of a coordinator of ours."""
        planned, client = message.planned, message.planned.client
        owed = state.owed.get(client, ())
        if client == message.coordinator and all(planned.step != other.step for other in owed):
            return fault_in(self._site, planned, list(message.before))
        if planned not in owed:
            raise ProtocolError(f"{client} was not asked for step {planned.step} of {message.tx}")
        return ""

    def _step_from_broker(self, source: Hop, message: Step) -> Ready:
        planned = message.planned
        self._checker.check_step(planned, message.before)
        is_record = planned.kind in RECORD_KINDS
        if is_record and self._site.crt.behind(planned.client, source, message.stamp[2]) is None:
            raise ProtocolError(f"a step of {planned.client}, who has not joined behind {source}")
        return self._step(source, message)

    def _step(self, source: Hop, message: Step) -> Ready:
        if message.decided and message.tx not in self.open:
            return self._too_late(source, message)
        state = self._registry.state(message.tx, message.coordinator)
        state.safe = message.safe
        if source not in self._site.neighbours:
            state.touched.add(name_of(source))
        if state.status == "aborted":
            return Ready([], [])
        ready = Ready([], [])
        if state.status == "committed":
            self._steps.process(state, message, source, ready)
        elif not state.buffer and self._is_ready(state, message):
            self._steps.process(state, message, source, ready)
            if state.term is not None:
                self._pump(state, ready)
        else:
            state.buffer[message.planned.step] = (message, source)
            self._pump(state, ready)
        return ready

    def _too_late(self, source: Hop, message: Step) -> Ready:
        """It has committed and ended here: a subscription counts all the same, but nobody waits for it.

        A `tcm` comes too late only if the client that it is for is gone: what it was to ask for is void.
        """
        planned, ready = message.planned, Ready([], [])
        if planned.kind in ("sub", "usub"):
            self._steps.process(Open(message.tx, status="committed"), message, source, ready)
        elif planned.kind == "tcm":
            numbers = tuple(n for nested in planned.nested for n in numbers_in(nested))
            reason = brief(f"participant {planned.target} is gone")
            ready.sends.append((source, StepVoid(message.tx, numbers, reason, decided=True)))
        return ready

    # Waiting

    def _echo(self, source: Hop, message: StepEcho) -> Ready:
        ready = self._steps.echo(source, message)
        self.look_again(message.tx, ready)
        return ready

    def look_again(self, tx: str, ready: Ready) -> None:
        """Something has come that a step of the transaction may have waited for."""
        state = self.open.get(tx)
        if state is not None:
            self._pump(state, ready)

    def pump_all(self) -> Ready:
        """A table has changed: what waits is looked at again."""
        ready = Ready([], [])
        for state in tuple(self.open.values()):
            self._pump(state, ready)
        return ready

    def _pump(self, state: Open, ready: Ready) -> None:
        """Process whatever need not wait, in order; then the question or the commit, if it need not either."""
        buffer = state.buffer
        while buffer and state.status == "active":
            for step in sorted(buffer):
                if self._is_ready(state, buffer[step][0]):
                    self._steps.process(state, *buffer.pop(step), ready)
                    break
            else:
                break
        # A step that waits here is never overtaken by the end, also if it began to wait after the vote.
        if state.status == "active" and state.term is not None and not state.buffer:
            message, source = state.term
            if not self._must_wait(state, None, message.before):
                state.term = None
                if isinstance(message, StepPrepare) or state.is_home:
                    state.bad = state.bad or self._missing(state, message.before)
                if isinstance(message, StepPrepare):
                    self._ask(state, message, source, ready)
                elif state.is_home and state.bad:
                    ready += self._undo(state, "", state.bad)
                else:
                    self._commit(state, message, source, ready)

    def _missing(self, state: Open, steps: Iterable[Before]) -> str:
        """Whether somebody is gone whose steps have not all been seen here."""
        for before in steps:
            if before.step not in state.processed and self._site.hop_to(before.client) is None:
                return brief(f"participant {before.client} is gone")
        return ""

    def _is_ready(self, state: Open, message: Step) -> bool:
        if message.planned.kind in ("adv", "uadv"):
            return True
        return not self._must_wait(state, message.planned, message.before)

    def _must_wait(self, state: Open, planned: Planned | None, steps: Iterable[Before]) -> bool:
        processed = state.processed
        for before in steps:
            is_past = before.step in processed and before.kind != "adv"
            if not is_past and waits(self._site, state, planned, before):
                return True
        return False

    # Votes and decisions

    def _term_from_client(self, client: str, message: StepPrepare | StepCommit) -> Ready:
        self._checker.check_before(message.before)
        if client != message.coordinator:
            raise ProtocolError(f"{client} does not decide on {message.tx}")
        if self._registry.has_too_many(client, message):
            return self._registry.refuse(client, message.tx)
        state = self._registry.state_for(client, message.tx, client)
        if state is None or state.status != "active":
            return Ready([], [])
        numbers = {before.step for before in message.before}
        is_voted = state.voted and not state.brokers and isinstance(message, StepCommit)
        if not state.bad and not is_voted and numbers != state.plan:
            raise ProtocolError(f"{message.tx} is to end without all of its steps")
        return self._term(client_hop(client), message)

    def _term_from_broker(self, source: Hop, message: StepPrepare | StepCommit) -> Ready:
        self._checker.check_before(message.before)
        return self._term(source, message)

    def _term(self, source: Hop, message: StepPrepare | StepCommit) -> Ready:
        state, ready = self._registry.state(message.tx, message.coordinator), Ready([], [])
        if state.status == "active":
            state.term = (message, source)
            self._pump(state, ready)
        return ready

    def _ask(self, state: Open, message: StepPrepare, source: Hop, ready: Ready) -> None:
        state.origin, state.voted = source, True
        state.brokers = set() if state.bad else set(self._site.others(source))
        self._site.note(ready, "voted", tx=state.tx, yes=not state.bad, reason=state.bad)
        if state.brokers:
            ready.sends += self._site.to_others(source, message)
        else:
            ready.sends.append((source, StepPrepared(state.tx, state.bad)))

    def _prepared(self, source: Hop, message: StepPrepared) -> Ready:
        state = self.open.get(message.tx)
        if state is None or state.status != "active" or source not in state.brokers:
            return Ready([], [])
        state.brokers.discard(source)
        state.bad = state.bad or message.reason
        if state.brokers and not message.reason:
            return Ready([], [])
        state.brokers.clear()
        return Ready([(state.origin, StepPrepared(message.tx, state.bad))], [])

    def _commit(self, state: Open, message: StepCommit, source: Hop, ready: Ready) -> None:
        state.status = "committed"
        self._site.commit(state.tx)
        if self._site.keeps_history:
            self._site.note(ready, "committed", tx=state.tx)
        self._end(state, source, message, ready)

    def _abort_from_client(self, client: str, message: StepAbort) -> Ready:
        state = self.open.get(message.tx)
        if state is None or state.status != "active":
            return Ready([], [])  # too late, or never begun
        if state.coordinator != client:
            raise ProtocolError(f"{client} does not decide on {message.tx}")
        return self._undo(state, client_hop(client), message.reason)

    def _abort(self, source: Hop, message: StepAbort) -> Ready:
        state = self._registry.state(message.tx, "")
        if state.status != "active":
            return Ready([], [])
        return self._undo(state, source, message.reason)

    def _undo(self, state: Open, source: Hop, reason: str) -> Ready:
        """`source` is told when it is done; nobody if it is empty."""
        state.status, state.bad, state.term = "aborted", brief(reason), None
        state.forget_work()
        self._routing.drop(state.tx)
        ready = Ready([], [])
        self._site.note(ready, "aborted", tx=state.tx, reason=state.bad)
        if not source and state.coordinator in self._site.guests:
            state.touched.add(state.coordinator)  # the decision is ours, and news to it
        self._end(state, source, StepAbort(state.tx, state.bad), ready)
        return ready

    def _end(self, state: Open, source: Hop, message: StepCommit | StepAbort, ready: Ready) -> None:
        state.origin = source
        state.brokers = set(self._site.others(source or client_hop(state.coordinator)))
        present = {client_hop(client) for client in state.touched if client in self._site.guests}
        state.clients = present - {source}
        ready.sends += [(hop, message) for hop in (*sorted(state.brokers), *sorted(state.clients))]
        self._bury(state, ready)

    def _ended(self, source: Hop, message: StepEnded) -> Ready:
        state, ready = self.open.get(message.tx), Ready([], [])
        if state is not None and state.status != "active":
            state.brokers.discard(source)
            state.clients.discard(source)
            if message.committed and not is_client(source):
                state.bad = state.bad or message.reason
            self._bury(state, ready)
        return ready

    def _bury(self, state: Open, ready: Ready) -> None:
        """When everybody has answered nothing of the transaction can come any more."""
        if state.brokers or state.clients:
            return
        if state.origin:
            ended = StepEnded(state.tx, state.status == "committed", state.bad)
            ready.sends.append((state.origin, ended))
        del self.open[state.tx]

    # Steps that will not come, clients that go, time that passes

    def _declare_void(self, state: Open, steps: Iterable[Planned], reason: str) -> Ready:
        numbers = tuple(sorted(number for planned in steps for number in numbers_in(planned)))
        return self._void("", StepVoid(state.tx, numbers, brief(reason)))

    def _void(self, source: Hop, message: StepVoid) -> Ready:
        if message.decided and message.tx not in self.open:
            return Ready([], [])
        state = self._registry.state(message.tx, "")
        if state.status == "aborted":
            return Ready([], [])
        state.processed.update(message.steps)
        state.bad = state.bad or message.reason
        message = replace(message, decided=state.status == "committed")
        if state.status == "committed":  # others may still wait: those behind us, or towards the publisher
            waiting = {*state.brokers, state.origin} - {source, "", client_hop(state.coordinator)}
            return Ready([(hop, message) for hop in sorted(waiting)], [])
        ready = Ready(self._site.to_others(source, message), [])
        self._site.note(ready, "steps-void", tx=state.tx, steps=message.steps, reason=message.reason)
        if state.coordinator in self._site.guests:
            ready.sends.append((client_hop(state.coordinator), StepFailed(state.tx, state.bad)))
        self._pump(state, ready)
        return ready

    def client_left(self, client: str) -> Ready:
        hop, ready = client_hop(client), Ready([], [])
        for state in tuple(self.open.values()):
            owed = state.owed.pop(client, None)
            if state.status != "active":
                state.clients.discard(hop)
                state.origin = "" if state.origin == hop else state.origin
                self._bury(state, ready)
            elif state.is_home and state.coordinator == client:
                ready += self._undo(state, "", f"its coordinator {client} is gone")
            elif owed:
                ready += self._declare_void(state, owed, f"participant {client} is gone")
            elif owed is not None and state.safe and not state.voted:
                state.bad = state.bad or f"participant {client} is gone"
        ready += self.pump_all()
        return ready

    def expire(self, now: float) -> Ready:
        ready = Ready([], [])
        for state in tuple(self.open.values()):
            if state.is_home and state.status == "active" and state.deadline <= now:
                ready += self._undo(state, "", "its lifetime is over")
        return ready

    def adopt(self, record: Record, message: Operation) -> bool:
        """A step has come by itself, attracted; False: it is to be dropped."""
        record.step, record.writer = message.step, message.tx
        if message.decided and message.tx not in self.open:
            return True
        state = self._registry.state(message.tx, "")
        state.processed.add(message.step)
        if state.status == "active":
            record.tag = message.tx
        return state.status != "aborted"
