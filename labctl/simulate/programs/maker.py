"""The parts that random programs are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from broker.protocol.filters import Overlap
from broker.protocol.limits import Limits
from broker.protocol.vocabulary import PLANNED, Protocol
from labctl.simulate.programs.programs import (
    ClockSkew,
    Conditions,
    Fault,
    Op,
    Program,
    RegularProgram,
    TxProgram,
)

VALUES = (0, 1, 2, 3)
BROKERS_MAX = 9
SPAN_S = 0.03
"""Transactions start within so much virtual time."""
DRIFT_MAX = 0.05
"""By so much a clock is faster or slower; a real one by a ten thousandth, in a long transaction."""
OVERLAP_ANY = 0.1
LOOKS_OFTEN = 0.2

Generator = Callable[[int, Sequence[Protocol]], Program]


def tree(random: Random, size: int) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    names = tuple(f"b{n}" for n in range(1, size + 1))
    links = tuple((names[random.randrange(n)], names[n]) for n in range(1, size))
    return names, links


class Maker:
    """The parts that generators share."""

    def __init__(
        self, name: str, seed: int, protocols: Sequence[Protocol], brokers_max: int = BROKERS_MAX
    ) -> None:
        self.random = Random(f"{name} {seed}")
        self.seed = seed
        self.protocols = list(protocols)
        size = self.random.choice((1, 2, 2, 3, 3, 4, 5, self.random.randint(1, brokers_max)))
        self.brokers, self.links = tree(self.random, min(size, brokers_max))
        self.clients = [f"c{n}" for n in range(1, self.random.randint(3, 5) + 1)]
        self.homes = {client: self.random.choice(self.brokers) for client in self.clients}
        self.setup: list[tuple[str, Op]] = []
        self.transactions: list[TxProgram] = []
        self.regular: list[RegularProgram] = []
        self.faults: list[Fault] = []
        self.spaces: tuple[str, ...] = ("d",)
        self.limits = Limits()
        self.expire_s = 0.5

    def values(self) -> tuple[int, ...]:
        random = self.random
        return tuple(sorted(random.sample(VALUES, random.choice((1, 1, 2, 3, 4)))))

    def change(self, space: str = "d", kinds: Sequence[str] = ("sub", "usub", "adv", "uadv")) -> Op:
        return Op(self.random.choice(kinds), space, self.values())  # type: ignore[arg-type]

    def publication(self, space: str = "d") -> Op:
        return Op("pub", space, (self.random.choice(VALUES),))

    def standard_setup(self, space: str = "d") -> None:
        for client in self.clients:
            if self.random.random() < 0.9:
                self.setup.append((client, Op("adv", space, VALUES)))
            if self.random.random() < 0.6:
                self.setup.append((client, Op("sub", space, self.values())))
            if self.random.random() < 0.3:
                self.setup.append((client, Op("usub", space, self.values())))

    def body(self, issuer: str, depth: int, space: str = "d", planned: bool = False) -> tuple[Op, ...]:
        random = self.random
        ops = []
        for _ in range(random.randint(1, 3)):
            draw = random.random()
            if draw < 0.35 and depth > 0:
                ops.append(self.control(issuer, depth, space, planned))
            elif draw < 0.6:
                ops.append(self.publication(space))
            else:
                kinds = ("sub", "usub", "sub", "usub", "adv", "uadv")
                ops.append(self.change(space, kinds))
        return tuple(ops)

    def control(self, issuer: str, depth: int, space: str, planned: bool) -> Op:
        """A `tcm`: to one client, or (not in a plan) to whoever subscribes to a point."""
        random = self.random
        others = [c for c in self.clients if c != issuer]
        target = random.choice(others)
        if planned or random.random() < 0.7:
            return Op("tcm", to=target, nested=((target, self.body(target, depth - 1, space, planned)),))
        return Op(
            "tcm",
            space,
            (random.choice(VALUES),),
            nested=tuple((c, self.body(c, depth - 1, space)) for c in others),
        )

    def transaction(self, space: str = "d", depth: int = 2, aborts: float = 0.1) -> None:
        random = self.random
        coordinator = random.choice(self.clients)
        protocol = random.choice(self.protocols)
        body = self.body(coordinator, depth, space, planned=protocol in PLANNED)
        self.add(coordinator, protocol, body, aborts)

    def add(self, coordinator: str, protocol: Protocol, body: tuple[Op, ...], aborts: float = 0.1) -> None:
        aborts_after = self.random.randint(0, len(body)) if self.random.random() < aborts else -1
        start = self.random.random() * SPAN_S
        self.transactions.append(TxProgram(coordinator, protocol, body, start, aborts_after))

    def add_regular(self, count: int, space: str = "d") -> None:
        for _ in range(count):
            client = self.random.choice(self.clients)
            ops = [
                self.publication(space) if self.random.random() < 0.3 else self.change(space)
                for _ in range(2)
            ]
            self.regular.append(RegularProgram(client, self.random.random() * SPAN_S, tuple(ops)))

    def add_faults(self, count: int) -> None:
        for client in self.random.sample(self.clients, count):
            kind = self.random.choice(("crash", "crash", "leave", "away"))
            time = self.random.random() * SPAN_S * 2
            self.faults.append(Fault(kind, client, time, self.random.choice((0, 0, 1, 2))))  # type: ignore[arg-type]

    def program(self) -> Program:
        names = [*(f"broker:{b}" for b in self.brokers), *(f"client:{c}" for c in self.clients)]
        slowness = {}
        if self.random.random() < 0.8:
            for source in names:
                for target in names:
                    if self.random.random() < 0.3:
                        slowness[f"{source}>{target}"] = 10 ** self.random.uniform(-1.5, 1.0)
        return Program(
            self.links, self.brokers, self.homes, tuple(self.setup), tuple(self.transactions),
            tuple(self.regular), tuple(self.faults), slowness, self.seed, self.spaces, self.conditions(),
        )  # fmt: skip

    def conditions(self) -> Conditions:
        """In every second overlay each broker has a clock of its own; in some the paper's overlap holds, and in some
        brokers look often for what has been open too long.
        """
        random, clocks = self.random, {}
        if random.random() < 0.5:
            for broker in self.brokers:
                offset_s = random.choice((-1, 1)) * 10 ** random.uniform(-3, 6)
                clocks[broker] = ClockSkew(offset_s, 1 + random.uniform(-DRIFT_MAX, DRIFT_MAX))
        overlap: Overlap = "any" if random.random() < OVERLAP_ANY else "all"
        expire_s = min(self.expire_s, 0.005) if random.random() < LOOKS_OFTEN else self.expire_s
        return Conditions(overlap, clocks, self.limits, expire_s)
