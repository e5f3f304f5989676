"""What came of a real run that was replayed: sentences, a verdict, and what `labctl simulate replay --from` prints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from broker.protocol.wire import AnyMessage
from labctl.checks.verdict import Verdict
from labctl.output import Output
from labctl.results import histories
from labctl.simulate.recorded import reading, repetition, smaller
from labctl.simulate.recorded.links import Altered
from labctl.simulate.recorded.nodes import Deviation, Late, Told
from labctl.simulate.recorded.repetition import ReplayedRepetition
from labctl.simulate.recorded.smaller import Case
from labctl.simulate.views.console import say_all, step_through
from labctl.simulate.views.describe import message
from labctl.simulate.views.diagram import diagram

REASON = (
    "A core does the same whenever it is given the same: either what stands around it did this, the server, a link or "
    "a timer, or the code of the broker has changed since it was recorded."
)


DRAWN_MAX = 400
"""Lines of a diagram that somebody may read."""
CHANGED = "the code of the broker is not that of the run: the difference may lie there"


def verdict(outcome: ReplayedRepetition, is_other_code: bool = False) -> Verdict:
    faults = tuple(map(sentence, outcome.differences))
    faults += (CHANGED,) if faults and is_other_code else ()
    answer = "invalid" if faults else "valid" if outcome.compared else "unknown"
    return Verdict("replay", answer, outcome.compared, faults)  # type: ignore[arg-type]


def sentence(one: Deviation | Late | Altered) -> str:
    where = f"line {one.line.number} of {one.line.node}, at {one.line.time:.6f} s"
    if isinstance(one, Late):
        return f"{where}: {one.node} had not looked at its open transactions for {one.seconds:.1f} s, a fault of its timer"
    if isinstance(one, Altered):
        left = (
            "had not left"
            if one.left is None
            else f"left as {_words(one.left)} and came as {_words(one.came)}"
        )
        what = f" ({_words(one.came)})" if one.left is None else ""
        return f"{where}: message {one.number} from {one.source} to {one.target} {left}{what}"
    if isinstance(one.expected or one.actual, Told):
        done = "told nothing" if one.actual is None else f"told {_words(one.actual)}"
        due = "tells nothing" if one.expected is None else f"tells {_words(one.expected)}"
    else:
        done = "sent nothing" if one.actual is None else f"sent {_words(one.actual)}"
        due = "sends nothing" if one.expected is None else f"sends {_words(one.expected)}"
    link = f"message {one.number} to {one.link}: " if one.link else ""
    return f"{where}: {link}{one.node} {done}, where its core {due}"


def _words(what: AnyMessage | Told) -> str:
    if isinstance(what, Told):
        return f"{what.name} {msgspec.json.encode(what.fields).decode()}"
    return message(what)


def replay(out: Output, folder: Path, steps: bool = False, shrink_s: float = 10.0) -> bool:
    """True: everything was reproduced, and kept its promises here as well."""
    result = histories.load(folder)
    recordings = reading.of(result, folder)
    outcome = repetition.replay(recordings)
    judged = verdict(outcome, repetition.is_of_other_code(folder))
    case = None if judged.faults else repetition.case(recordings, result)
    broken = {} if case is None else case.broken(case.world(traces=False))
    drawn = [] if case is None else _drawing(out, case, broken, steps, shrink_s)
    rows = [
        (n.node, n.arrivals, n.messages, n.told, n.lost, "reproduced" if n.is_reproduced else "different")
        for n in outcome.nodes
    ]
    names = ("broker", "arrivals", "sent", "told", "lost", "state")
    out.document(
        {
            "repetition": str(folder),
            "answer": judged.answer,
            "compared": judged.checked,
            "differences": judged.faults,
            "brokers": [dict(zip(names, row, strict=True)) for row in rows],
            "violations": broken,
            "steps": drawn,
        }
    )
    if not out.json:
        columns = ("broker", "arrivals", "sent as by its core", "told as by its core", "connections lost", "")
        out.table(str(folder), columns, rows)
        _tell(out, outcome, judged, case)
        say_all(out, [f"{name}: {text}" for name, text in broken.items()])
        if steps:
            step_through(out, drawn)
        else:
            say_all(out, drawn)
    return not judged.faults and not broken


def _tell(out: Output, outcome: ReplayedRepetition, judged: Verdict, case: Case | None) -> None:
    if judged.faults:
        say_all(out, [*judged.faults, REASON])
        return
    crossed = sum(link.messages for link in outcome.links)
    out.say(f"reproduced: every message and every decision; {crossed:,} messages came as they had left")
    if case is None:
        out.say("A broker has lived twice: the brokers are replayed one by one, and not as one overlay.")


def _drawing(out: Output, case: Case, broken: Mapping[str, str], steps: bool, shrink_s: float) -> list[str]:
    """All of it, if that is wanted; or the smallest part of it that breaks what it broke."""
    if steps:
        return diagram(case.world(), case.program)
    if not broken:
        return []
    with out.working("making the run smaller"):
        small = smaller.shrink(case, next(iter(broken)), shrink_s)
    world = small.world()
    units = sorted({unit for _, unit in world.said if unit[0] != "stay"} - small.without)
    left = [f"  {kind} {name}" for kind, name in units[:DRAWN_MAX]]
    drawn = diagram(world, small.program)
    if len(drawn) > DRAWN_MAX:
        drawn = [f"{len(drawn):,} messages and more, too many to draw: give it longer, with --shrink-s"]
    return ["", "What is left of it when all else is taken away:", *left, "", *drawn]
