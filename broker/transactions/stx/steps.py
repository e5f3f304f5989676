"""Steps of S-TX plans on their way through a broker, once they need not wait any more; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from broker.matching.records import Record, RoutingError
from broker.protocol.events import PROCESSED
from broker.protocol.hops import Hop, is_client, name_of
from broker.protocol.stx import Planned, Step, StepDone, StepEcho
from broker.routing.ready import Ready
from broker.routing.state import BrokerState
from broker.transactions.stx.execution import Echo, Execution
from broker.transactions.stx.planning import hop_in


class Stepping:
    def __init__(self, state: BrokerState, open_: Mapping[str, Execution]) -> None:
        self._state = state
        self._routing = state.routing
        self._open = open_

    def process(self, execution: Execution, message: Step, source: Hop, ready: Ready) -> Sequence[Planned]:
        """Carry a step out, and send it on; the steps that will never come because nobody is there to ask."""
        planned = message.planned
        if self._state.keeps_history:
            self._state.note(
                ready, PROCESSED, tx=message.tx, op=planned.step, kind=planned.kind, client=planned.client,
                stamp=message.stamp, source=source,
            )  # fmt: skip
        execution.processed.add(planned.step)
        if message.decided != (execution.status == "committed"):
            message = replace(message, decided=not message.decided)
        if planned.kind == "tcm":
            return self._control(execution, message, ready)
        if planned.kind == "pub":
            self._publish(execution, message, source, ready)
        else:
            self._record(execution, message, source, ready)
        return ()

    def release(self, execution: Execution, step: int, ready: Ready) -> None:
        """News of a publication that waited behind it goes on."""
        if execution.held:
            ready.sends += [(self._way(done), done) for done in execution.held.pop(step, ())]

    def _record(self, execution: Execution, message: Step, source: Hop, ready: Ready) -> None:
        planned = message.planned
        assert planned.filter is not None
        kind = planned.kind
        assert kind != "pub"
        assert kind != "tcm"
        if self._state.crt.behind(planned.client, source, message.stamp[2]) is None:
            self._state.mark("a client has left while its step waited")
            return
        tag = execution.tx if execution.status == "active" else None
        record = Record(kind, planned.client, message.stamp, planned.filter, tag, planned.step, execution.tx)
        if tag is None:
            self.hide(record, execution.tx)
        known = self._routing.find(record, source)
        if known is not None:  # somebody else's advertisement has brought it here before
            ready.sends += [(hop, message) for hop in self._routing.send_on(known, source)]
            return
        try:
            placement = self._routing.place(record, source)
        except RoutingError as error:
            execution.bad = execution.bad or str(error)
            return
        ready.sends += [(hop, message) for hop in placement.onward]
        ready.sends += [(source, self._routing.operation(attracted)) for attracted in placement.attracted]
        if planned.kind == "adv":
            execution.echoes[planned.step] = Echo(source, set(placement.onward))
            self._settle_echo(execution, planned.step, ready)

    def hide(self, record: Record, tx: str) -> None:
        """A step that comes after the commit: what it takes back counts when all brokers have committed."""
        if record.kind == "usub" and tx in self._state.retirement.written:
            record.tag = tx
            self._routing.veiled.add(tx)

    def _publish(self, execution: Execution, message: Step, source: Hop, ready: Ready) -> None:
        planned = message.planned
        assert planned.event is not None
        hops = self._routing.hops_of_step(planned.event, message.tx, planned.step)
        neighbours = self._state.neighbours
        for hop in sorted(hops):
            if hop == source:
                continue
            ready.sends.append((hop, message))
            if hop not in neighbours:
                execution.touched.add(name_of(hop))
        if planned.client != message.coordinator and not message.safe and source not in neighbours:
            done = StepDone(message.tx, planned.step, message.coordinator)
            ready.sends.append((self._way(done), done))

    def _control(self, execution: Execution, message: Step, ready: Ready) -> Sequence[Planned]:
        planned = message.planned
        hop = hop_in(self._state, execution, planned.target)
        if hop is None:
            if self._state.hop_to(planned.target) is not None:
                self._state.mark("whom a tcm asks is gone, and has come back")
            return planned.nested
        if is_client(hop):
            if not self._state.guests[planned.target].joined:
                self._state.mark("whom a tcm asks has not joined yet")
                return planned.nested
            execution.touched.add(planned.target)
            execution.owed.setdefault(planned.target, []).extend(planned.nested)
        ready.sends.append((hop, message))
        return ()

    def _way(self, done: StepDone) -> Hop:
        """To the coordinator; nowhere if it is gone."""
        return self._state.hop_to(done.coordinator) or ""

    def done(self, source: Hop, message: StepDone) -> Ready:
        execution = self._open.get(message.tx)
        if execution is not None and message.step in execution.buffer:
            self._state.mark("news of a publication wait behind it")
            execution.held.setdefault(message.step, []).append(message)
            return Ready([], [])
        return Ready([(self._way(message), message)], [])

    def echo(self, source: Hop, message: StepEcho) -> Ready:
        execution, ready = self._open.get(message.tx), Ready([], [])
        if execution is not None and message.step in execution.echoes:
            execution.echoes[message.step].awaiting.discard(source)
            self._settle_echo(execution, message.step, ready)
        return ready

    def _settle_echo(self, execution: Execution, step: int, ready: Ready) -> None:
        echo = execution.echoes[step]
        if echo.awaiting:
            return
        del execution.echoes[step]
        if is_client(echo.origin):
            execution.echoed.add(step)
        else:
            ready.sends.append((echo.origin, StepEcho(execution.tx, step)))
