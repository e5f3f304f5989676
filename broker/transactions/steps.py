"""Steps of S-TX plans on their way through a broker, once they need not wait any more; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from broker.hops import Hop, is_client, name_of
from broker.records import Record, RoutingError
from broker.routing import operation
from broker.site import Ready, Site
from broker.transactions.plan import Echo, Open
from broker.txmessages import Planned, Step, StepDone, StepEcho

DeclareVoid = Callable[[Open, Iterable[Planned], str], Ready]


class Steps:
    def __init__(self, site: Site, open_: Mapping[str, Open], declare_void: DeclareVoid) -> None:
        self._site = site
        self._routing = site.routing
        self._open = open_
        self._declare_void = declare_void

    def process(self, state: Open, message: Step, source: Hop, ready: Ready) -> None:
        planned = message.planned
        if self._site.keeps_history:
            self._site.note(
                ready, "processed", tx=message.tx, op=planned.step, kind=planned.kind, client=planned.client,
                stamp=message.stamp, source=source,
            )  # fmt: skip
        state.processed.add(planned.step)
        if message.decided != (state.status == "committed"):
            message = replace(message, decided=not message.decided)
        if planned.kind == "pub":
            self._publish(state, message, source, ready)
        elif planned.kind == "tcm":
            self._control(state, message, ready)
        else:
            self._record(state, message, source, ready)
        if state.held:
            ready.sends += [(self._way(done), done) for done in state.held.pop(planned.step, ())]

    def _record(self, state: Open, message: Step, source: Hop, ready: Ready) -> None:
        planned = message.planned
        assert planned.filter is not None
        kind = planned.kind
        assert kind != "pub"
        assert kind != "tcm"
        if self._site.crt.behind(planned.client, source, message.stamp[2]) is None:
            return  # it has left while its step waited
        tag = state.tx if state.status == "active" else None
        record = Record(kind, planned.client, message.stamp, planned.filter, tag, planned.step, state.tx)
        known = self._routing.find(record, source)
        if known is not None:  # somebody else's advertisement has brought it here before
            ready.sends += [(hop, message) for hop in self._routing.send_on(known, source)]
            return
        try:
            placement = self._routing.place(record, source)
        except RoutingError as error:
            state.bad = state.bad or str(error)
            return
        ready.sends += [(hop, message) for hop in placement.onward]
        ready.sends += [(source, operation(attracted)) for attracted in placement.attracted]
        if planned.kind == "adv":
            state.echoes[planned.step] = Echo(source, set(placement.onward))
            self._settle_echo(state, planned.step, ready)

    def _publish(self, state: Open, message: Step, source: Hop, ready: Ready) -> None:
        planned = message.planned
        assert planned.event is not None
        hops = self._routing.hops_of_step(planned.event, message.tx, planned.step)
        neighbours = self._site.neighbours
        for hop in sorted(hops):
            if hop == source:
                continue
            ready.sends.append((hop, message))
            if hop not in neighbours:
                state.touched.add(name_of(hop))
        if planned.client != message.coordinator and not message.safe and source not in neighbours:
            done = StepDone(message.tx, planned.step, message.coordinator)
            ready.sends.append((self._way(done), done))

    def _control(self, state: Open, message: Step, ready: Ready) -> None:
        planned = message.planned
        hop = self._site.hop_to(planned.target)
        if hop is None or (is_client(hop) and planned.target not in self._site.guests):
            reason = f"participant {planned.target} is gone"
            ready += self._declare_void(state, planned.nested, reason)
            return
        if is_client(hop):
            state.touched.add(planned.target)
            state.owed.setdefault(planned.target, []).extend(planned.nested)
        ready.sends.append((hop, message))

    def _way(self, done: StepDone) -> Hop:
        """To the coordinator; nowhere if it is gone."""
        return self._site.hop_to(done.coordinator) or ""

    def done(self, source: Hop, message: StepDone) -> Ready:
        state = self._open.get(message.tx)
        if state is not None and message.step in state.buffer:
            state.held.setdefault(message.step, []).append(message)
            return Ready([], [])
        return Ready([(self._way(message), message)], [])

    def echo(self, source: Hop, message: StepEcho) -> Ready:
        state, ready = self._open.get(message.tx), Ready([], [])
        if state is not None and message.step in state.echoes:
            state.echoes[message.step].awaiting.discard(source)
            self._settle_echo(state, message.step, ready)
        return ready

    def _settle_echo(self, state: Open, step: int, ready: Ready) -> None:
        echo = state.echoes[step]
        if echo.awaiting:
            return
        del state.echoes[step]
        if is_client(echo.origin):
            state.echoed.add(step)
        else:
            ready.sends.append((echo.origin, StepEcho(state.tx, step)))
