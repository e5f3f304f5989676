"""Random programs: each generator makes one from a seed, the same for the same seed."""

from __future__ import annotations

from collections.abc import Sequence

from broker.protocol.vocabulary import PLANNED, Protocol
from labctl.simulate.programs import carried, narrow, resting, windows
from labctl.simulate.programs.maker import BROKERS_MAX, SPAN_S, VALUES, Generator, Maker, tree
from labctl.simulate.programs.programs import Op, Program, RegularProgram

__all__ = ["BROKERS_MAX", "GENERATORS", "SPAN_S", "VALUES", "Generator", "Maker", "tree"]


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
        middle = maker.body(coordinator, 1, planned=protocol in PLANNED)
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


def bursts(seed: int, protocols: Sequence[Protocol]) -> Program:
    """Clients publish several events at once between transactions: brokers decide on them together."""
    maker = Maker("bursts", seed, protocols)
    random = maker.random
    maker.standard_setup()
    for _ in range(random.randint(1, 2)):
        maker.transaction()
    for _ in range(random.randint(2, 4)):
        events = tuple(maker.publication() for _ in range(random.randint(4, 12)))
        maker.regular.append(RegularProgram(random.choice(maker.clients), random.random() * SPAN_S, events))
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
    "carve": windows.carve,
    "crossing": windows.crossing,
    "circular": windows.circular,
    "beside": windows.beside,
    "lost": windows.lost,
    "returning": windows.returning,
    "bursts": bursts,
    "undo": resting.undo,
    "hurried": resting.hurried,
    "crowd": resting.crowd,
    "turns": windows.turns,
    "sequel": windows.sequel,
    "handover": windows.handover,
    "pressed": carried.pressed,
    "stranded": narrow.stranded,
    "overtaken": narrow.overtaken,
    "twins": narrow.twins,
}
