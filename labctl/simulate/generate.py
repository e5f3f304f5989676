"""Random programs: each generator makes one from a seed, the same for the same seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from labctl.simulate.programs import Fault, Op, Program, Protocol, Regular, TxProgram

VALUES = (0, 1, 2, 3)
BROKERS_MAX = 9
SPAN_S = 0.03
"""Transactions start within so much virtual time."""

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
        self.regular: list[Regular] = []
        self.faults: list[Fault] = []
        self.spaces: tuple[str, ...] = ("d",)

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
        body = self.body(coordinator, depth, space, planned=protocol.startswith("s-tx"))
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
            self.regular.append(Regular(client, self.random.random() * SPAN_S, tuple(ops)))

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
            tuple(self.regular), tuple(self.faults), slowness, self.seed, self.spaces,
        )  # fmt: skip


def dispatch(seed: int, protocols: Sequence[Protocol]) -> Program:
    """The paper's first use case, one to three at a time: a dispatcher hands an instance to an agent."""
    maker = Maker("dispatch", seed, protocols)
    random, clients = maker.random, maker.clients
    engine, dispatcher, *agents = clients
    maker.setup += [(engine, Op("adv", "d", VALUES)), (dispatcher, Op("sub", "d", VALUES))]
    for value in random.sample(VALUES, random.randint(1, 3)):
        agent = random.choice(agents)
        asked = Op("tcm", to=agent, nested=((agent, (Op("sub", "d", (value,)),)),))
        reaction = (asked, Op("usub", "d", (value,)))
        body = (Op("tcm", to=dispatcher, nested=((dispatcher, reaction),)), Op("pub", "d", (value,)))
        maker.add(engine, random.choice(maker.protocols), body)
    return maker.program()


def consolidate(seed: int, protocols: Sequence[Protocol]) -> Program:
    """The second use case: one client takes instances over from others."""
    maker = Maker("consolidate", seed, protocols)
    random, clients = maker.random, maker.clients
    engine, taker, *agents = clients
    maker.setup.append((engine, Op("adv", "d", VALUES)))
    for agent in agents:
        maker.setup.append((agent, Op("sub", "d", maker.values())))
    for _ in range(random.randint(1, 2)):
        body = []
        for agent in random.sample(agents, random.randint(1, len(agents))):
            values = maker.values()
            body.append(Op("tcm", to=agent, nested=((agent, (Op("usub", "d", values),)),)))
            body.append(Op("sub", "d", values))
        if random.random() < 0.6:
            points = tuple(maker.publication() for _ in range(2))
            body.append(Op("tcm", to=engine, nested=((engine, points),)))
        maker.add(taker, random.choice(maker.protocols), tuple(body))
    return maker.program()


def move(seed: int, protocols: Sequence[Protocol]) -> Program:
    """Section 3.3: a subscription moves while others publish to it."""
    maker = Maker("move", seed, protocols)
    random = maker.random
    first, second, *others = maker.clients
    for client in maker.clients:
        maker.setup.append((client, Op("adv", "d", VALUES)))
    maker.setup.append((first, Op("sub", "d", (0, 1))))
    for _ in range(random.randint(1, 2)):
        a, b = random.sample((first, second, *others), 2)
        coordinator = random.choice(maker.clients)
        body: list[Op] = []
        for client, op in ((a, Op("usub", "d", (0,))), (b, Op("sub", "d", (0,)))):
            body.append(op if client == coordinator else Op("tcm", to=client, nested=((client, (op,)),)))
        maker.add(coordinator, random.choice(maker.protocols), tuple(body))
    for _ in range(random.randint(1, 3)):
        maker.add(random.choice(maker.clients), random.choice(maker.protocols), (Op("pub", "d", (0,)),))
    return maker.program()


def skew(seed: int, protocols: Sequence[Protocol]) -> Program:
    """Write skew: each publishes what the other is about to subscribe to."""
    maker = Maker("skew", seed, protocols, 3)
    one, other = maker.random.sample(maker.clients, 2)
    for client in maker.clients:
        maker.setup.append((client, Op("adv", "d", VALUES)))
    maker.add(one, maker.random.choice(maker.protocols), (Op("pub", "d", (0,)), Op("sub", "d", (1,))), 0.0)
    maker.add(other, maker.random.choice(maker.protocols), (Op("pub", "d", (1,)), Op("sub", "d", (0,))), 0.0)
    if maker.random.random() < 0.5:
        maker.add(
            maker.random.choice(maker.clients), maker.random.choice(maker.protocols), (Op("sub", "d", (3,)),)
        )
    return maker.program()


def advertise(seed: int, protocols: Sequence[Protocol]) -> Program:
    """Advertisements inside transactions: they attract, and publications follow them."""
    maker = Maker("advertise", seed, protocols)
    random = maker.random
    for client in maker.clients:
        if random.random() < 0.7:
            maker.setup.append((client, Op("sub", "d", maker.values())))
        if random.random() < 0.3:
            maker.setup.append((client, Op("usub", "d", maker.values())))
        if random.random() < 0.3:
            maker.setup.append((client, Op("adv", "d", maker.values())))
    for _ in range(random.randint(2, 3)):
        coordinator = random.choice(maker.clients)
        protocol = random.choice(maker.protocols)
        value = random.choice(VALUES)
        middle = maker.body(coordinator, 1, planned=protocol.startswith("s-tx"))
        body = (Op("adv", "d", (value,)), *middle, Op("pub", "d", (value,)))
        maker.add(coordinator, protocol, body)
    return maker.program()


def disjoint(seed: int, protocols: Sequence[Protocol]) -> Program:
    """Two to six transactions, each on a space of its own: every protocol must be exact."""
    maker = Maker("disjoint", seed, protocols)
    spaces = tuple(f"d{n}" for n in range(maker.random.randint(2, 6)))
    maker.spaces = spaces
    for space in spaces:
        maker.standard_setup(space)
        maker.transaction(space)
    return maker.program()


def overlapping(seed: int, protocols: Sequence[Protocol]) -> Program:
    """Two to six transactions of any shape on one space."""
    maker = Maker("overlapping", seed, protocols)
    maker.standard_setup()
    for _ in range(maker.random.randint(2, 6)):
        maker.transaction()
    return maker.program()


def mixed(seed: int, protocols: Sequence[Protocol]) -> Program:
    """Transactions with regular operations between them."""
    maker = Maker("mixed", seed, protocols)
    maker.standard_setup()
    for _ in range(maker.random.randint(1, 4)):
        maker.transaction()
    maker.add_regular(maker.random.randint(1, 4))
    return maker.program()


def crash(seed: int, protocols: Sequence[Protocol]) -> Program:
    """Clients crash, leave, or lose their connection for a while, at any moment."""
    maker = Maker("crash", seed, protocols)
    maker.standard_setup()
    for _ in range(maker.random.randint(1, 4)):
        maker.transaction(aborts=0.2)
    if maker.random.random() < 0.3:
        maker.add_regular(1)
    maker.add_faults(maker.random.randint(1, 2))
    return maker.program()


def aborts(seed: int, protocols: Sequence[Protocol]) -> Program:
    """Every second transaction is aborted by its coordinator, at any step."""
    maker = Maker("aborts", seed, protocols)
    maker.standard_setup()
    for _ in range(maker.random.randint(1, 4)):
        maker.transaction(aborts=0.5)
    return maker.program()


GENERATORS: dict[str, Generator] = {
    "dispatch": dispatch,
    "consolidate": consolidate,
    "move": move,
    "skew": skew,
    "advertise": advertise,
    "disjoint": disjoint,
    "overlapping": overlapping,
    "mixed": mixed,
    "crash": crash,
    "aborts": aborts,
}
