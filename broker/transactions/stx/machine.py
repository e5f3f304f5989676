"""S-TX at a broker (Section 6, corrected): steps wait for the steps before them; pure.

The coordinator knows the whole plan. Each step carries what comes before it, and a broker holds it back
until everything that will reach this broker has; advertisements alone are never held back. The commit
waits like a step that comes last. Records stand in the tables at once, under the transaction's tag. With
`safe`, a round of votes comes first. A step that will never come, because whoever owes it is gone, is
declared void, so that nobody waits.

Whatever comes is filed in an `Execution` (`broker.transactions.stx.execution`); then the machine is pumped:
what need not wait is carried out (`steps`), and when nothing is left the transaction ends (`decisions`).
These two know nothing of each other, nor of the machine. docs/protocols.md has the reasons for each rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from broker.matching.records import Record
from broker.protocol.events import STEPS_VOID
from broker.protocol.hops import Hop, client_hop, for_client, name_of
from broker.protocol.messages import Operation
from broker.protocol.stx import (
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
from broker.protocol.vocabulary import NO_STAMP, Stamp
from broker.protocol.wire import brief
from broker.routing.ready import ProtocolError, Ready
from broker.routing.state import BrokerState, Guest
from broker.transactions.machine import Machine
from broker.transactions.stx.decisions import StxDecisions
from broker.transactions.stx.execution import Execution, numbers_in
from broker.transactions.stx.planning import fault_in, hop_in, waits
from broker.transactions.stx.registry import Registry
from broker.transactions.stx.steps import Stepping
from broker.transactions.stx.wellformed import RECORD_KINDS, Checker


class Stx(Machine):
    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._checker = Checker(state.limits)
        self._registry = Registry(state)
        self.open = self._registry.open
        self.unfinished = (self.open,)
        self._steps = Stepping(state, self.open)
        self._decisions = StxDecisions(state, self.open)
        self.from_client: dict[type, Callable[[str, Any], Ready]] = {
            Step: self._step_from_client,
            StepPrepare: self._term_from_client,
            StepCommit: self._term_from_client,
            StepAbort: self._decisions.abort_from_client,
            StepEnded: for_client(self._decisions.ended),
        }
        self.from_broker: dict[type, Callable[[Hop, Any], Ready]] = {
            Step: self._step_from_broker,
            StepEcho: self._echo,
            StepDone: self._steps.done,
            StepPrepare: self._term_from_broker,
            StepPrepared: self._decisions.prepared,
            StepCommit: self._term_from_broker,
            StepAbort: self._abort,
            StepEnded: self._decisions.ended,
            StepVoid: self._void,
        }

    def describe(self) -> dict[str, list[dict[str, Any]]]:
        return {"plans": [execution.describe() for execution in self.open.values()]}

    # What comes: steps

    def _step_from_client(self, client: str, message: Step) -> Ready:
        guest, planned = self._state.joined_guest(client), message.planned
        self._checker.check_step(planned, message.before)
        if planned.client != client:
            raise ProtocolError(f"{client} sent a step of {planned.client}")
        if self._registry.has_too_many(client, message):
            return self._registry.refuse(client, message.tx)
        execution = self._registry.execution_for(client, message.tx, message.coordinator)
        if execution is None or execution.status != "active":
            return Ready([], [])
        fault = self._fault(execution, message)
        if fault:
            execution.bad = execution.bad or brief(fault)
            return Ready([(client_hop(execution.coordinator), StepFailed(message.tx, execution.bad))], [])
        if planned in execution.owed.get(client, ()):
            execution.owed[client].remove(planned)
        else:
            execution.plan.update(numbers_in(planned))
        stamp = NO_STAMP
        if planned.kind in RECORD_KINDS:
            stamp = self._stamp(execution, guest, message)
        message = replace(message, stamp=stamp, decided=False, lives=tuple(execution.lives.items()))
        return self._step(client_hop(client), message)

    def _stamp(self, execution: Execution, guest: Guest, message: Step) -> Stamp:
        """In the order of the plan: a client sends its own steps before those that it is asked for later.

        Below each stamp there is room for the steps before it: one that comes late fits in, and stays older than
        what its client has said beside the plan since.
        """
        given, earlier = execution.stamps.setdefault(message.planned.client, {}), len(message.before)
        next_ = min((place for place in given if place > earlier), default=None)
        if next_ is None:
            key, class_, incarnation, number = self._state.next_stamp(guest)
            guest.operations = number + earlier
            stamp = (key, class_, incarnation, number + earlier)
        else:
            key, class_, incarnation, number = given[next_]
            stamp = (key, class_, incarnation, number - (next_ - earlier))
        given[earlier] = stamp
        return stamp

    def _fault(self, execution: Execution, message: Step) -> str:
        """What is wrong with a step, or with the plan of a coordinator of ours."""
        planned, client = message.planned, message.planned.client
        owed = execution.owed.get(client, ())
        if client == message.coordinator and all(planned.step != other.step for other in owed):
            return fault_in(self._state, execution, planned, list(message.before))
        if planned not in owed:
            raise ProtocolError(f"{client} was not asked for step {planned.step} of {message.tx}")
        return ""

    def _step_from_broker(self, source: Hop, message: Step) -> Ready:
        planned = message.planned
        self._checker.check_step(planned, message.before)
        is_record = planned.kind in RECORD_KINDS
        if is_record and self._state.crt.behind(planned.client, source, message.stamp[2]) is None:
            raise ProtocolError(f"a step of {planned.client}, who has not joined behind {source}")
        return self._step(source, message)

    def _step(self, source: Hop, message: Step) -> Ready:
        if message.decided and message.tx not in self.open:
            return self._too_late(source, message)
        execution = self._registry.execution(message.tx, message.coordinator)
        execution.safe = message.safe
        execution.lives.update(message.lives)
        if source not in self._state.neighbours:
            execution.touched.add(name_of(source))
        if execution.status == "aborted":
            return Ready([], [])
        ready = Ready([], [])
        if execution.status == "committed":
            self._state.mark("a step crosses a broker that has committed")
            self._process(execution, message, source, ready)
        elif not execution.buffer and self._is_ready(execution, message):
            self._process(execution, message, source, ready)
            if execution.term is not None:
                self._pump(execution, ready)
        else:
            if execution.voted:
                self._state.mark("a step waits behind the vote")
            execution.buffer[message.planned.step] = (message, source)
            self._pump(execution, ready)
        return ready

    def _too_late(self, source: Hop, message: Step) -> Ready:
        """It has committed and ended here: a subscription counts all the same, but nobody waits for it.

        A `tcm` comes too late only if the client that it is for is gone: what it was to ask for is void.
        """
        planned, ready = message.planned, Ready([], [])
        self._state.mark("a step comes where its plan has ended")
        if planned.kind in ("sub", "usub"):
            self._process(Execution(message.tx, status="committed"), message, source, ready)
        elif planned.kind == "tcm":
            numbers = tuple(n for nested in planned.nested for n in numbers_in(nested))
            reason = brief(f"participant {planned.target} is gone")
            ready.sends.append((source, StepVoid(message.tx, numbers, reason, decided=True)))
        return ready

    def _echo(self, source: Hop, message: StepEcho) -> Ready:
        ready = self._steps.echo(source, message)
        self._look_again(message.tx, ready)
        return ready

    # What comes: the question for votes, and the end

    def _term_from_client(self, client: str, message: StepPrepare | StepCommit) -> Ready:
        self._checker.check_before(message.before)
        if client != message.coordinator:
            raise ProtocolError(f"{client} does not decide on {message.tx}")
        if self._registry.has_too_many(client, message):
            return self._registry.refuse(client, message.tx)
        execution = self._registry.execution_for(client, message.tx, client)
        if execution is None or execution.status != "active":
            return Ready([], [])
        numbers = {before.step for before in message.before}
        is_voted = execution.voted and not execution.brokers and isinstance(message, StepCommit)
        if not execution.bad and not is_voted and numbers != execution.plan:
            raise ProtocolError(f"{message.tx} is to end without all of its steps")
        return self._term(client_hop(client), replace(message, lives=tuple(execution.lives.items())))

    def _term_from_broker(self, source: Hop, message: StepPrepare | StepCommit) -> Ready:
        self._checker.check_before(message.before)
        return self._term(source, message)

    def _term(self, source: Hop, message: StepPrepare | StepCommit) -> Ready:
        execution, ready = self._registry.execution(message.tx, message.coordinator), Ready([], [])
        execution.lives.update(message.lives)
        if execution.status == "active":
            execution.term = (message, source)
            self._pump(execution, ready)
        return ready

    def _abort(self, source: Hop, message: StepAbort) -> Ready:
        execution = self._registry.execution(message.tx, "")
        if execution.status != "active":
            return Ready([], [])
        return self._decisions.undo(execution, source, message.reason)

    # The pump: whatever need not wait, in order; then the end, if it need not either

    def _pump(self, execution: Execution, ready: Ready) -> None:
        buffer = execution.buffer
        while buffer and execution.status == "active":
            for step in sorted(buffer):
                if self._is_ready(execution, buffer[step][0]):
                    self._process(execution, *buffer.pop(step), ready)
                    break
            else:
                break
        # A step that waits here is never overtaken by the end, also if it began to wait after the vote.
        if execution.status == "active" and execution.term is not None and not execution.buffer:
            message, source = execution.term
            if not self._must_wait(execution, None, message.before):
                execution.term = None
                self._finish(execution, message, source, ready)

    def _process(self, execution: Execution, message: Step, source: Hop, ready: Ready) -> None:
        void = self._steps.process(execution, message, source, ready)
        if void:
            ready += self._declare_void(execution, void, f"participant {message.planned.target} is gone")
        self._steps.release(execution, message.planned.step, ready)

    def _finish(
        self, execution: Execution, message: StepPrepare | StepCommit, source: Hop, ready: Ready
    ) -> None:
        """Nothing before the question for votes, or the commit, is missing here."""
        if isinstance(message, StepPrepare) or execution.is_home:
            execution.bad = execution.bad or self._missing(execution, message.before)
        if isinstance(message, StepPrepare):
            self._decisions.ask(execution, message, source, ready)
        elif execution.is_home and execution.bad:
            ready += self._decisions.undo(execution, "", execution.bad)
        else:
            self._decisions.commit(execution, message, source, ready)

    def _missing(self, execution: Execution, steps: Iterable[Before]) -> str:
        """Whether somebody is gone whose steps have not all been seen here."""
        for before in steps:
            if before.step in execution.processed:
                continue
            if hop_in(self._state, execution, before.client) is None:
                self._state.mark("a vote or commit misses a step of one who is gone")
                return brief(f"participant {before.client} is gone")
        return ""

    def _is_ready(self, execution: Execution, message: Step) -> bool:
        if message.planned.kind in ("adv", "uadv"):
            return True
        return not self._must_wait(execution, message.planned, message.before)

    def _must_wait(self, execution: Execution, planned: Planned | None, steps: Iterable[Before]) -> bool:
        processed = execution.processed
        for before in steps:
            is_past = before.step in processed and before.kind != "adv"
            if not is_past and waits(self._state, execution, planned, before):
                return True
        return False

    def _look_again(self, tx: str, ready: Ready) -> None:
        """Something has come that a step of the transaction may have waited for."""
        execution = self.open.get(tx)
        if execution is not None:
            self._pump(execution, ready)

    def advertised(self) -> Ready:
        ready = Ready([], [])
        for execution in tuple(self.open.values()):
            self._pump(execution, ready)
        return ready

    # Steps that will not come, clients that go, time that passes

    def _declare_void(self, execution: Execution, steps: Iterable[Planned], reason: str) -> Ready:
        numbers = tuple(sorted(number for planned in steps for number in numbers_in(planned)))
        return self._void("", StepVoid(execution.tx, numbers, brief(reason)))

    def _void(self, source: Hop, message: StepVoid) -> Ready:
        if message.decided and message.tx not in self.open:
            # It has ended here, and need not have where the steps are awaited.
            return Ready(self._state.to_others(source, message), [])
        execution = self._registry.execution(message.tx, "")
        if execution.status == "aborted":
            return Ready([], [])
        execution.processed.update(message.steps)
        execution.bad = execution.bad or message.reason
        message = replace(message, decided=execution.status == "committed")
        if message.decided:
            self._state.mark("steps are void where their plan has committed")
        if execution.status == "committed":
            # Others may still wait: those behind us, or towards the publisher.
            silent = {source, "", client_hop(execution.coordinator)}
            waiting = {*execution.brokers, execution.origin} - silent
            return Ready([(hop, message) for hop in sorted(waiting)], [])
        ready = Ready(self._state.to_others(source, message), [])
        self._state.note(ready, STEPS_VOID, tx=execution.tx, steps=message.steps, reason=message.reason)
        if execution.coordinator in self._state.guests:
            ready.sends.append((client_hop(execution.coordinator), StepFailed(execution.tx, execution.bad)))
        self._pump(execution, ready)
        return ready

    def client_left(self, client: str) -> Ready:
        hop, ready = client_hop(client), Ready([], [])
        for execution in tuple(self.open.values()):
            execution.touched.discard(client)
            owed = execution.owed.pop(client, None)
            if execution.status != "active":
                self._decisions.forget_client(execution, hop, ready)
            elif execution.is_home and execution.coordinator == client:
                ready += self._decisions.undo(execution, "", f"its coordinator {client} is gone")
            elif owed:
                ready += self._declare_void(execution, owed, f"participant {client} is gone")
            elif owed is not None and execution.safe and not execution.voted:
                execution.bad = execution.bad or f"participant {client} is gone"
        ready += self.advertised()
        return ready

    def expire(self, now: float) -> Ready:
        """A plan that is not committed within its lifetime is aborted at home."""
        ready = Ready([], [])
        for execution in tuple(self.open.values()):
            if execution.is_home and execution.status == "active" and execution.deadline <= now:
                self._state.mark("the lifetime of a plan is over")
                ready += self._decisions.undo(execution, "", "its lifetime is over")
        return ready

    # Steps that come by themselves, attracted

    def owns(self, message: Operation) -> bool:
        return bool(message.step)

    def adopt(self, record: Record, message: Operation) -> bool:
        record.step, record.writer = message.step, message.tx
        if message.decided and message.tx not in self.open:
            self._state.mark("a step is attracted to where its plan has ended")
            self._steps.hide(record, message.tx)
            return True
        execution = self._registry.execution(message.tx, "")
        execution.processed.add(message.step)
        if execution.status == "active":
            record.tag = message.tx
        elif execution.status == "committed":
            self._state.mark("a step is attracted to where its plan has committed")
            self._steps.hide(record, message.tx)
        return execution.status != "aborted"

    def adopted(self, message: Operation, ready: Ready) -> None:
        self._look_again(message.tx, ready)
