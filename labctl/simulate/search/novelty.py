"""How different schedules were: what they have met that none before them had.

Both kinds of novelty are read when a schedule is over, so that they cost next to nothing: the *marks* that the
core leaves where something seldom happens, and the *states* of a broker: what happens there to a transaction,
beside others of which some are how far, and whether somebody is gone. When nothing new comes for long, more
seeds of the same generators tell little.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache

from msgspec import Struct, field

from broker.protocol import events
from labctl.checks.history import Moment
from labctl.paths import PROJECT
from labctl.simulate.world import World

State = tuple[str, str, frozenset[str], bool]
"""Protocol, what happens, how far other transactions are at this broker, whether a client is gone."""
HAPPENINGS = frozenset(
    {events.BEGUN, events.PROCESSED, events.VOTED, events.COMMITTED, events.ABORTED, events.STEPS_VOID}
)


class Novelty(Struct):
    """What several schedules have met, in their order."""

    states: set[str] = field(default_factory=set)
    marks: set[str] = field(default_factory=set)
    schedules: int = 0
    last: int = 0
    """The number of the schedule that met something new last; the first is 1."""

    @property
    def quiet(self) -> int:
        """Schedules since then."""
        return self.schedules - self.last

    def add(self, count: int, states: dict[str, int], marks: dict[str, int]) -> None:
        """So many schedules more, and which of them, counted from 0, met what first."""
        new = [place for name, place in states.items() if name not in self.states]
        new += [place for name, place in marks.items() if name not in self.marks]
        if new:
            self.last = self.schedules + max(new) + 1
        self.schedules += count
        self.states |= states.keys()
        self.marks |= marks.keys()

    def without(self, met: dict[str, int]) -> dict[str, int]:
        """What of it is new."""
        return {name: place for name, place in met.items() if name not in self.states | self.marks}


class Met:
    """What the schedules of one chunk have met, and which of them first."""

    def __init__(self) -> None:
        self._states: dict[State, int] = {}
        self.marks: dict[str, int] = {}

    def look(self, place: int, world: World) -> None:
        for state in states_of(world.moments):
            self._states.setdefault(state, place)
        for broker in world.brokers.values():
            for mark in broker.state.marks:
                self.marks.setdefault(mark, place)

    @property
    def states(self) -> dict[str, int]:
        return {_words(state): place for state, place in self._states.items()}


def states_of(moments: Iterable[Moment]) -> Iterator[State]:
    modes: dict[str, str] = {}
    nodes: dict[str, dict[str, str]] = {}
    is_one_gone = False
    for moment in moments:
        name, fields = moment.name, moment.fields
        if name in HAPPENINGS:
            tx, others = fields["tx"], nodes.setdefault(moment.node, {})
            step = fields["kind"] if name == events.PROCESSED else name
            if name == events.VOTED:
                step = "votes yes" if fields["yes"] else "votes no"
            others.pop(tx, None)
            yield modes.get(tx, "regular"), step, frozenset(others.values()), is_one_gone
            if tx:
                others[tx] = step
        elif name == events.BEGIN:
            modes[fields["tx"]] = fields["mode"]
        elif name in (events.CRASHED, events.LEFT):
            is_one_gone = True


def _words(state: State) -> str:
    mode, step, others, is_one_gone = state
    beside = f" beside {', '.join(sorted(others))}" if others else ""
    return f"{mode}: {step}{beside}{'; one is gone' if is_one_gone else ''}"


@cache
def known_marks() -> frozenset[str]:
    """All that the core can leave."""
    trees = (ast.parse(path.read_bytes()) for path in (PROJECT / "broker").glob("**/*.py"))
    calls = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call))
    marking = (c for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr == "mark")
    words = (argument for call in marking for argument in call.args)
    return frozenset(word.value for word in words if isinstance(word, ast.Constant))  # type: ignore[misc]
