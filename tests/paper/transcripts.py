"""What passes between clients and brokers in a transaction, as text: the golden transcripts.

`python -m tests.paper.transcripts` writes them anew, into tests/paper/golden; tests/paper/test_transcripts.py compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from broker.core import Input
from broker.protocol import events
from broker.protocol.dtx import (
    Abort,
    Begin,
    Begun,
    Commit,
    Ended,
    Prepare,
    Prepared,
    TxAck,
    TxPublish,
    TxRecord,
    TxRequest,
)
from broker.protocol.filters import Event, Filter, describe
from broker.protocol.hops import name_of
from broker.protocol.messages import Forget, Operation, Over
from broker.protocol.stx import (
    Before,
    Planned,
    Step,
    StepAbort,
    StepCommit,
    StepDone,
    StepEcho,
    StepEnded,
    StepPrepare,
    StepPrepared,
)
from broker.protocol.vocabulary import NO_KEY, PROTOCOLS, Key, Protocol
from labctl.simulate.programs.programs import Op
from labctl.simulate.world import Passage, SimMoment
from tests.support.scripted import CROSSING_S, Script, Started, adv, ask, call, line, pub, sub, usub

GOLDEN = Path(__file__).parent / "golden"
SHOWN = (events.VOTED, events.COMMITTED, events.ABORTED, events.DELIVERED, events.ENDED)
"""What happened at a node, beside messages, and is worth a line."""


class Words:
    """Messages and moments of one script as sentences, with short names for transactions and operations."""

    def __init__(self, script: Script, names: Mapping[str, str]) -> None:
        """`names` of the transactions, by id; an only one needs none."""
        self._names = names
        self._numbers: dict[str, list[int]] = {}
        """Operations of each transaction without a plan, in order; the steps of a plan have their numbers."""
        for moment in script.world.moments:
            if moment.name == events.BEGIN and not moment.fields["mode"].startswith("s-tx"):
                self._numbers[moment.fields["tx"]] = []
            elif moment.name == events.ISSUED and moment.fields.get("tx") in self._numbers:
                self._numbers[moment.fields["tx"]].append(moment.fields["op"])
        self._say: dict[type, Callable[[Any], str]] = {
            **_PLAIN,
            Begin: lambda m: f"begin {m.mode}{self._key(m.key)}",
            TxRequest: lambda m: f"{self._op(m)} {m.kind} {_filter(m.filter)}",
            TxRecord: self._record,
            TxPublish: lambda m: f"{self._op(m)} {m.kind} {_event(m.event)}",
            TxAck: self._ack,
            Step: lambda m: self._step(m.planned),
            StepEcho: lambda m: f"echo of op{m.step}: all that it attracts has been sent",
            StepDone: lambda m: f"op{m.step} has left its edge broker",
            Over: lambda m: f"over: {', '.join(self._names.get(tx, 'it') for tx in m.txs)}",
        }

    def of(self, message: Input) -> str:
        """A message."""
        return self._named(getattr(message, "tx", ""), self._say[type(message)](message))

    def at(self, moment: SimMoment, since: float | None) -> str:
        """What happened at a node; `since`: the message that led to it had to wait."""
        waited = "" if since is None else f", after waiting since {since:g}"
        fields, tx = moment.fields, moment.fields["tx"]
        if moment.name == events.VOTED:
            text = f"votes {'yes' if fields['yes'] else 'no, ' + fields['reason']}"
        elif moment.name == events.ENDED:
            text = f"knows: {fields['outcome']}" + (f", {fields['reason']}" if fields["reason"] else "")
        elif moment.name == events.DELIVERED:
            text = f"is given op{self._number(tx, fields['op'])}, {_event(fields['event'])}"
        elif moment.name == events.PROCESSED:
            text = f"processes op{self._number(tx, fields['op'])}"
        else:
            text = {"committed": "commits", "aborted": "aborts"}[moment.name]
        return self._named(tx, text + waited)

    def _named(self, tx: str, text: str) -> str:
        return f"{self._names[tx]}: {text}" if tx in self._names else text

    def _number(self, tx: str, op: int) -> int:
        return 1 + self._numbers[tx].index(op) if tx in self._numbers else op

    def _op(self, message: TxRequest | TxRecord | TxPublish | TxAck) -> str:
        return f"op{self._number(message.tx, message.op)}"

    def _record(self, message: TxRecord) -> str:
        what = f"{message.kind} {_filter(message.filter)} of {message.client}"
        return (
            f"{what} (attracted by {self._op(message)})"
            if message.triggered
            else f"{self._op(message)} {what}"
        )

    def _ack(self, message: TxAck) -> str:
        reached = f", reached {message.reached}" if message.reached else ""
        return f"ack {self._op(message)}{reached}" + (f": {message.reason}" if message.reason else "")

    def _step(self, planned: Planned) -> str:
        if planned.filter is not None:
            return f"op{planned.step} {planned.kind} {_filter(planned.filter)} of {planned.client}"
        if planned.event is not None:
            return f"op{planned.step} pub {_event(planned.event)}"
        return f"op{planned.step} tcm to {planned.target} [{'; '.join(map(self._step, planned.nested))}]"

    def _key(self, key: Key) -> str:
        return "" if key == NO_KEY else f", key ({key[0]}, {self._names.get(key[1], key[1].split('/')[0])})"


def _after(before: Sequence[Before]) -> str:
    """Of a commit or a question for votes: the steps that it has to wait for."""
    if not before:
        return ""
    first, last = before[0].step, before[-1].step
    return f", after op{first}" if first == last else f", after op{first} to op{last}"


_PLAIN: dict[type, Callable[[Any], str]] = {
    Begun: lambda m: "begun",
    Prepare: lambda m: "prepare",
    Prepared: lambda m: f"prepared: {'no, ' + m.reason if m.reason else 'yes'}",
    Commit: lambda m: "commit",
    Abort: lambda m: f"abort: {m.reason}",
    Ended: lambda m: f"ended: {'committed' if m.committed else 'aborted'}",
    StepPrepare: lambda m: f"prepare{_after(m.before)}",
    StepPrepared: lambda m: f"prepared: {'no, ' + m.reason if m.reason else 'yes'}",
    StepCommit: lambda m: f"commit{_after(m.before)}",
    StepAbort: lambda m: f"abort: {m.reason}",
    StepEnded: lambda m: f"ended: {'committed' if m.committed else 'aborted'}",
    Operation: lambda m: f"{m.kind} {_filter(m.filter)} of {m.client} (attracted)",
    Forget: lambda m: f"forget a record of {m.client}: it has no effect any more",
}


def _filter(filter_: Filter) -> str:
    return "{" + ", ".join(f"{name} {describe(p)}" for name, p in filter_.as_mapping().items()) + "}"


def _event(event: Event) -> str:
    return "{" + ", ".join(f"{name} = {value!r}" for name, value in event.items()) + "}"


def transcript(script: Script, names: Mapping[str, str] | None = None) -> list[str]:
    """By time: first the messages that arrive, then what happens."""
    words = Words(script, names or {})
    passages = script.world.passages[script.passages_before :]
    lines = [(_crossings(script, p.arrived), 0, _arrow(words, p)) for p in passages]
    for moment, since in _shown(script, passages):
        lines.append((_crossings(script, moment.time), 1, f"{'':4}{moment.node} {words.at(moment, since)}"))
    lines.sort(key=lambda entry: entry[:2])
    return [f"{time:>5g}  {text}" for time, _, text in lines]


def _arrow(words: Words, passage: Passage) -> str:
    return f"{name_of(passage.source):>3} -> {name_of(passage.target):<3} {words.of(passage.message)}"


def _crossings(script: Script, time: float) -> float:
    return (time - script.start) / CROSSING_S


def _shown(script: Script, passages: list[Passage]) -> Iterator[tuple[SimMoment, float | None]]:
    """Moments worth a line, each with the time since when its message waited, if it did."""
    for moment in script.world.moments:
        if moment.time < script.start or "tx" not in moment.fields or not moment.fields["tx"]:
            continue
        cause = _cause(moment, passages)
        since = None if cause is None or cause.arrived == moment.time else _crossings(script, cause.arrived)
        if moment.name in SHOWN or (moment.name == events.PROCESSED and since is not None):
            yield moment, since


def _cause(moment: SimMoment, passages: list[Passage]) -> Passage | None:
    """The message that a broker acts upon, if it may have had to wait."""
    kinds: dict[str, tuple[type, ...]] = {
        "voted": (Prepare, StepPrepare),
        "committed": (StepCommit,),
        "processed": (Step,),
    }
    for passage in passages:
        message = passage.message
        if (
            name_of(passage.target) == moment.node
            and isinstance(message, kinds.get(moment.name, ()))
            and message.tx == moment.fields["tx"]  # type: ignore[union-attr]
            and (not isinstance(message, Step) or message.planned.step == moment.fields["op"])
        ):
            return passage
    return None


# The stories

LEGEND = """\
Left: time, in link crossings; a line with an arrow is a message that arrives then, an indented line is
what happens at a node. Each crossing takes one unit, processing none.
"""


def dispatching(protocol: Protocol) -> str:
    script = Script(
        line("b1", "b2", "b3"),
        {"E": "b1", "D": "b2", "A": "b3"},
        [("E", Op("adv", "p1", (1, 2))), ("D", Op("sub", "p1", (1, 2)))],
        traces=True,
    )
    asked = ask("A", Op("sub", "p1", (1,)))
    body = (ask("D", asked, Op("usub", "p1", (1,))), Op("pub", "p1", (1,)))
    started = script.transaction("E", protocol, *body)
    script.run()
    title = f"""\
Dispatching with {protocol}: the dispatcher D hands instance 1 of process p1 to the agent A.

Brokers b1 - b2 - b3; engine E at b1, D at b2, A at b3. E advertises process p1, D subscribes to all of it.
Events of the process have s = 'p1' and x = the instance; control messages have s = 'c' and to = the client.
E asks D (op1), which asks A (op2) to subscribe (op3), and unsubscribes itself (op4); then E publishes (op5).

{LEGEND}"""
    return _page(title, [*transcript(script), "", _cost(script, started)])


FIGURE_2: tuple[Protocol, ...] = ("d-tx", "s-tx")


def figure_2(protocol: Protocol) -> str:
    script = Script(
        line("b1", "b2"),
        {"C1": "b1", "C2": "b2"},
        [("C2", sub(0)), ("C1", adv(1))],
        traces=True,
    )
    planned = protocol.startswith("s-tx")
    asked = ask("C2", sub(1)) if planned else call(0, C2=[sub(1)])
    started = script.transaction("C1", protocol, adv(0), asked, pub(1))
    script.run()
    way = "addressed by its id" if planned else "by point 0, so that the old subscription leads it there"
    title = f"""\
Figure 2 of the paper with {protocol}: an advertisement attracts an old subscription.

Brokers b1 - b2; C1 at b1, C2 at b2. C2 subscribed to point 0 (x = 0) when nobody advertised it: the
subscription waits at b2. C1 advertises point 1 only. In the transaction C1 advertises point 0 (op1), which
attracts the old subscription. It sends a tcm to C2 (op2), {way}.
C2 answers it by a subscription to point 1 (op3), which C1 publishes at last (op4).

{LEGEND}"""
    return _page(title, [*transcript(script), "", _cost(script, started)])


SCHEDULES = {
    1: ("pub", "sub", "usub"),
    2: ("sub", "pub", "usub"),
    3: ("sub", "usub", "pub"),
}
REMARKS = {
    1: "Whatever the protocol, c2's subscription comes too late for it.",
    2: """\
D-TX: t2 sees what is committed, and of t1 nothing is. The others see the new subscription, and the old one
is still there: both clients get the publication.""",
    3: """\
D-TX: t2 still sees what is committed. It has the smaller key, so it commits first and t1 waits for it;
d-tx-optimistic does not wait, and t2 has missed its place. Without isolation t2 sees the new subscription,
but an un-subscription counts for others only when its transaction has committed: nothing is lost if that
aborts, and until then both clients get the publication. With s-tx t1 commits in the same moment.""",
}
MOVE_STARTS = 12


def move(schedule: int) -> str:
    order = ", ".join(
        {"pub": "pub[c1]", "sub": "sub[c2]", "usub": "usub[c3]"}[k] for k in SCHEDULES[schedule]
    )
    title = f"""\
The move of Section 3.3, schedule {schedule}: the broker processes {order}.

One broker b1. c1 advertises point 0, c3 subscribes to it. t1 of c2 moves the subscription from c3 to c2: it
subscribes, and asks c3 by a tcm to unsubscribe. t2 of c1 publishes point 0 meanwhile. Intended is that c3
gets it, or c2, and not both.

{REMARKS[schedule]}

{LEGEND}"""
    parts = []
    for protocol in PROTOCOLS:
        script, moving, publishing = scheduled(schedule, protocol)
        names = {moving.tx: "t1", publishing.tx: "t2"}
        got = [client for client in ("c2", "c3") if script.got(client)]
        ends = f"t1 {script.outcome(moving)}, t2 {script.outcome(publishing)}"
        summary = f"=> {ends}; delivered to {' and '.join(got) or 'nobody'}"
        parts += ["", f"## {protocol}", "", *transcript(script, names), "", summary]
    return _page(title.rstrip("\n"), parts)


def scheduled(schedule: int, protocol: Protocol) -> tuple[Script, Started, Started]:
    """Start the publisher early or late enough: the broker processes the operations in the order asked for."""
    tried = range(2 * MOVE_STARTS)
    for start in reversed(tried) if schedule == 1 else tried:
        script = Script((), {"c1": "b1", "c2": "b1", "c3": "b1"}, [("c1", adv(0)), ("c3", sub(0))], True)
        moving = script.transaction("c2", protocol, sub(0), ask("c3", usub(0)), at=MOVE_STARTS)
        publishing = script.transaction("c1", protocol, pub(0), at=start + 0.5)
        script.run()
        if processed(script) == SCHEDULES[schedule]:
            return script, moving, publishing
    raise AssertionError(f"no start gives schedule {schedule} with {protocol}")


def processed(script: Script) -> tuple[str, ...]:
    """Kinds of operations in the order in which the only broker has processed them."""
    moments = (m for m in script.world.moments if m.name == events.PROCESSED and m.fields["tx"])
    return tuple(m.fields["kind"] for m in moments if m.fields["kind"] != "tcm")


def _cost(script: Script, started: Started) -> str:
    crossings = started.ended - started.began
    return f"=> {script.outcome(started)}; {script.messages} messages, {crossings:g} crossings until it knew"


def _page(title: str, lines: Iterable[str]) -> str:
    return "\n".join((title, *(text.rstrip() for text in lines))).rstrip() + "\n"


def stories() -> dict[str, Callable[[], str]]:
    """By the name of the file."""
    found: dict[str, Callable[[], str]] = {}
    for protocol in PROTOCOLS:
        found[f"dispatching-{protocol}.txt"] = partial(dispatching, protocol)
    for protocol in FIGURE_2:
        found[f"figure-2-{protocol}.txt"] = partial(figure_2, protocol)
    for schedule in SCHEDULES:
        found[f"move-schedule-{schedule}.txt"] = partial(move, schedule)
    return found


def write() -> None:
    GOLDEN.mkdir(exist_ok=True)
    for name, tell in stories().items():
        (GOLDEN / name).write_text(tell(), "utf-8")


if __name__ == "__main__":
    write()
