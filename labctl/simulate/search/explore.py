"""All schedules of small worlds: every order in which links can deliver and transactions can begin.

The search runs a program again and again with other choices. A state that was reached before is not
looked at twice, so that each end is judged once, however many schedules lead to it; these are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import cast

from msgspec import Struct

from broker.protocol.vocabulary import D_TX, PROTOCOLS, S_TX, Protocol
from labctl.simulate.programs.programs import Fault, Op, Program, TxProgram
from labctl.simulate.runner import SimResult, SimRun
from labctl.simulate.search.choices import Action, ChoiceWorld

LIMIT = 20_000
CLIENTS = ("c1", "c2", "c3")
SPACE = (0, 1)


class Explored(Struct):
    name: str
    protocol: str
    brokers: int
    runs: int = 0
    """How often the program was executed, to an end or to a state that was known."""
    states: int = 0
    ends: int = 0
    """Different last states; each was judged."""
    schedules: int = 0
    """Different schedules that lead to these ends through the states seen."""
    complete: bool = False
    """Whether no choice is left untried."""
    violations: list[dict[str, object]] = []
    seconds: float = 0.0


class Explorer:
    def __init__(self, program: Program, limit: int) -> None:
        self._program = program
        self._limit = limit
        self.runs = 0
        self.ends: set[bytes] = set()
        self.next: dict[bytes, list[bytes]] = {}
        """Which states follow on each."""
        self.faults: list[tuple[str, str]] = []
        self.failing: tuple[int, ...] = ()
        """The choices that lead to the first violation."""
        self._waiting: list[tuple[tuple[int, ...], bytes]] = [((), b"")]

    def run(self) -> bool:
        """Whether all was seen."""
        while self._waiting and self.runs < self._limit and not self.faults:
            self._execute(*self._waiting.pop())
        return not self._waiting

    def _execute(self, prefix: tuple[int, ...], parent: bytes) -> None:
        """Repeat the choices that lead to a state, then go on as far as there is news."""
        self.runs += 1
        run = begin(self._program)
        world = cast("ChoiceWorld", run.world)
        replay(world, prefix)
        path = list(prefix)
        while True:
            actions = _to_choice(world)
            state = world.state()
            self.next.setdefault(parent, []).append(state)
            if state in self.next:
                return
            self.next[state] = []
            if not actions:
                self._end(run, state, path)
                return
            self._waiting += [((*path, place), state) for place in range(len(actions) - 1, 0, -1)]
            world.act(actions[0])
            path.append(0)
            parent = state

    def _end(self, run: SimRun, state: bytes, path: Sequence[int]) -> None:
        self.ends.add(state)
        result = run.judge(run.world.messages)
        if result.faults:
            self.faults, self.failing = result.faults, tuple(path)

    def schedules(self) -> int:
        """Paths from the first state to an end; a state that was not left yet counts as none."""
        counts: dict[bytes, int] = dict.fromkeys(self.ends, 1)
        stack = [b""]
        while stack:
            state = stack[-1]
            missing = [s for s in self.next[state] if s not in counts]
            if missing:
                stack += missing
            else:
                stack.pop()
                counts.setdefault(state, sum(counts[s] for s in self.next[state]))
        return counts[b""]


def begin(program: Program, traces: bool = False) -> SimRun:
    """A run in which nothing has been chosen yet."""
    run = SimRun(program, traces, ChoiceWorld)
    run.prepare()
    world = cast("ChoiceWorld", run.world)
    world.hold(traces)
    for number, transaction in enumerate(program.transactions):
        name = f"transaction {number} begins"
        world.offer(name, transaction.coordinator, _bound(run.begin, number, transaction))
    for number, fault in enumerate(program.faults):
        world.offer(f"fault {number}", fault.client, _bound(run.strike, fault))
    return run


def _bound(function: Callable[..., None], *arguments: object) -> Callable[[], None]:
    return lambda: function(*arguments)


def _to_choice(world: ChoiceWorld) -> list[Action]:
    """Go on while there is only one way; returns the ways from there, none at the end."""
    actions = world.actions()
    while len(actions) == 1:
        world.act(actions[0])
        actions = world.actions()
    return actions


def replay(world: ChoiceWorld, choices: Sequence[int]) -> None:
    for choice in choices:
        world.act(_to_choice(world)[choice])


def shown(program: Program, choices: Sequence[int]) -> SimResult:
    """The schedule of these choices, with traces for a diagram."""
    run = begin(program, traces=True)
    world = cast("ChoiceWorld", run.world)
    replay(world, choices)
    while actions := _to_choice(world):
        world.act(actions[0])
    return run.judge(world.messages)


def explore(name: str, protocol: str, program: Program, limit: int = LIMIT) -> tuple[Explored, Explorer]:
    began = monotonic()
    search = Explorer(program, limit)
    complete = search.run()
    violations: list[dict[str, object]] = [
        {"seed": program.seed, "property": property_, "text": text} for property_, text in search.faults
    ]
    explored = Explored(
        name, protocol, len(program.brokers), search.runs, len(search.next) - 1, len(search.ends),
        search.schedules(), complete, violations, round(monotonic() - began, 3),
    )  # fmt: skip
    return explored, search


# Small programs


def small_programs(protocols: Sequence[str]) -> Iterator[tuple[str, str, Program]]:
    """Name, protocol and program: two transactions on one and on two brokers."""
    for choice in protocols:
        pair = _pair(choice)
        for brokers in (("b1",), ("b1", "b2")):
            for name, make in SMALL.items():
                yield name, choice, _program(brokers, *make(*pair))


def _pair(choice: str) -> tuple[Protocol, Protocol]:
    if choice == "mixed":
        return (D_TX, S_TX)
    protocol = next(p for p in PROTOCOLS if p == choice)
    return (protocol, protocol)


Small = tuple[tuple[TxProgram, ...], tuple[Fault, ...]]


def _skew(one: Protocol, other: Protocol) -> Small:
    """Each publishes what the other subscribes to."""
    return (
        TxProgram("c1", one, (Op("pub", "d", (0,)), Op("sub", "d", (1,)))),
        TxProgram("c2", other, (Op("pub", "d", (1,)), Op("sub", "d", (0,)))),
    ), ()


def _move(one: Protocol, other: Protocol) -> Small:
    """A subscription moves from c1 to c2 while c2 publishes to it."""
    given = Op("tcm", to="c2", nested=(("c2", (Op("sub", "d", (0,)),)),))
    return (
        TxProgram("c1", one, (Op("usub", "d", (0,)), given)),
        TxProgram("c3", other, (Op("pub", "d", (0,)),)),
    ), ()


def _dispatch(one: Protocol, other: Protocol) -> Small:
    """c3 asks c2 to take over a point and publishes to it; c1 publishes to it beside."""
    taken = Op("tcm", to="c2", nested=(("c2", (Op("sub", "d", (0,)),)),))
    return (
        TxProgram("c3", one, (taken, Op("pub", "d", (0,)))),
        TxProgram("c1", other, (Op("pub", "d", (0,)),)),
    ), ()


def _loss(one: Protocol, other: Protocol) -> Small:
    """A move whose participant crashes at any moment."""
    transactions, _ = _move(one, other)
    return transactions[:1], (Fault("crash", "c2", 0.0),)


def _attract(one: Protocol, _other: Protocol) -> Small:
    """An advertisement attracts a subscription of its own transaction, whose client crashes at any moment."""
    asked = Op("tcm", to="c2", nested=(("c2", (Op("sub", "e", (0,)),)),))
    return (TxProgram("c1", one, (asked, Op("adv", "e", (0,)))),), (Fault("crash", "c2", 0.0),)


SMALL: dict[str, Callable[[Protocol, Protocol], Small]] = {
    "skew": _skew,
    "move": _move,
    "dispatch": _dispatch,
    "loss": _loss,
    "attract": _attract,
}


def _program(
    brokers: tuple[str, ...], transactions: tuple[TxProgram, ...], faults: tuple[Fault, ...]
) -> Program:
    links = tuple((brokers[0], other) for other in brokers[1:])
    homes = {client: brokers[place % len(brokers)] for place, client in enumerate(CLIENTS)}
    setup = [(client, Op("adv", "d", SPACE)) for client in CLIENTS]
    setup.append(("c1", Op("sub", "d", SPACE)))
    return Program(links, brokers, homes, tuple(setup), transactions, faults=faults, spaces=("d", "e"))
