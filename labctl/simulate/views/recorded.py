"""What came of a real run that was replayed: sentences, a verdict, and what `labctl simulate replay --from` prints."""

from __future__ import annotations

from pathlib import Path

import msgspec

from broker.protocol.wire import AnyMessage
from labctl.checks.verdict import Verdict
from labctl.output import Output
from labctl.simulate.recorded import reading, repetition
from labctl.simulate.recorded.links import Altered
from labctl.simulate.recorded.nodes import Difference, Told
from labctl.simulate.recorded.repetition import Outcome
from labctl.simulate.views.describe import message

REASON = (
    "A core does the same whenever it is given the same: either what stands around it did this, the server, a link or "
    "a timer, or the code of the broker has changed since it was recorded."
)


def verdict(outcome: Outcome) -> Verdict:
    faults = tuple(map(sentence, outcome.differences))
    answer = "invalid" if faults else "valid" if outcome.compared else "unknown"
    return Verdict("replay", answer, outcome.compared, faults)  # type: ignore[arg-type]


def sentence(one: Difference | Altered) -> str:
    where = f"line {one.line.number} of {one.line.node}, at {one.line.time:.6f} s"
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


def replay(out: Output, folder: Path) -> bool:
    """True: everything was reproduced."""
    outcome = repetition.replay(reading.load(folder))
    judged = verdict(outcome)
    rows = [
        (n.node, n.arrivals, n.messages, n.told, "reproduced" if n.is_reproduced else "different")
        for n in outcome.nodes
    ]
    columns = ("broker", "arrivals", "sent as by its core", "told as by its core", "")
    out.document(
        {
            "repetition": str(folder),
            "answer": judged.answer,
            "compared": judged.checked,
            "differences": judged.faults,
            "brokers": [
                dict(zip(("broker", "arrivals", "sent", "told", "state"), row, strict=True)) for row in rows
            ],
        }
    )
    if out.json:
        return not judged.faults
    out.table(str(folder), columns, rows)
    for text in judged.faults:
        out.say(text)
    if judged.faults:
        out.say(REASON)
    else:
        crossed = sum(link.messages for link in outcome.links)
        out.say(f"reproduced: every message and every decision; {crossed:,} messages came as they had left")
    return not judged.faults
