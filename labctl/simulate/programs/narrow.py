"""Random programs that aim at narrow windows in who is where, who overtakes whom, and who wants whose id."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec import structs

from broker.protocol.limits import Limits
from broker.protocol.vocabulary import D_TX, ISOLATED, Protocol
from labctl.simulate.programs.maker import SPAN_S, VALUES, Maker, tree
from labctl.simulate.programs.programs import Fault, Op, Program, RegularProgram, TxProgram

OPPOSITE = {"adv": "uadv", "uadv": "adv", "sub": "usub", "usub": "sub"}


def stranded(seed: int, protocols: Sequence[Protocol]) -> Program:
    """One of those who ask each other in turn is slow, and goes; who it was to ask lies beyond their coordinator."""
    maker = Maker("stranded", seed, protocols)
    random = maker.random
    maker.brokers, _ = tree(random, random.randint(4, 6))
    maker.links = tuple(pairwise(maker.brokers))
    slow, coordinator, *others = random.sample(maker.clients, random.randint(3, len(maker.clients)))
    middle = random.randrange(2, len(maker.brokers) - 1)
    beyond = random.choice((middle, middle + 1))
    maker.homes = {client: random.choice(maker.brokers[beyond:]) for client in maker.clients}
    maker.homes |= {coordinator: maker.brokers[middle], slow: random.choice(maker.brokers[:middle])}
    for client in maker.clients:
        maker.setup += [(client, Op("adv", "d", VALUES))] if random.random() < 0.1 else []
        maker.setup += [(client, maker.change("d", ("sub",)))] if random.random() < 0.2 else []
    body: tuple[Op, ...] = (maker.change("d", ("sub", "usub", "sub", "usub", "adv")),)
    for client in (*others, slow):
        before = (maker.change(),) if random.random() < 0.2 else ()
        asked = Op("tcm", to=client, nested=((client, (*before, *body)),))
        body = (asked, maker.change()) if random.random() < 0.1 else (asked,)
    maker.transactions.append(TxProgram(coordinator, random.choice(maker.protocols), body))
    kind, struck = random.choice(("crash", "leave")), random.choice((slow, slow, slow, others[-1]))
    time, lost = SPAN_S * random.random(), random.choice((0, 0, 1))
    maker.faults.append(Fault(kind, struck, time, lost))  # type: ignore[arg-type]
    program = maker.program()
    late = {f"client:{slow}>broker:{maker.homes[slow]}": random.choice((5.0, 20.0, 50.0))}
    return structs.replace(program, slowness=program.slowness | late)


def overtaken(seed: int, protocols: Sequence[Protocol]) -> Program:
    """A client changes regularly what an early and slow transaction changes for it, when later ones have committed."""
    maker = Maker("overtaken", seed, protocols, 4)
    random = maker.random
    maker.limits = Limits(unheard_ms=random.choice((2, 5, 20)))
    slow, writer, *others = maker.clients
    quick = [p for p in maker.protocols if p in ISOLATED and p != D_TX] or maker.protocols
    for client in maker.clients:
        maker.setup += [(client, Op("adv", "d", VALUES))] if random.random() < 0.4 else []
        maker.setup += [(client, maker.change("d", ("sub",)))] if random.random() < 0.4 else []
    for coordinator in random.sample((slow, writer), random.randint(1, 2)):
        change = maker.change()
        mine = change if coordinator == writer else Op("tcm", to=writer, nested=((writer, (change,)),))
        asked = slow if coordinator == writer else random.choice(others)
        last = Op("tcm", to=asked, nested=((asked, (maker.change("d", ("sub", "usub")),)),))
        maker.transactions.append(TxProgram(coordinator, random.choice(maker.protocols), (mine, last)))
        for _ in range(random.randint(1, 2)):
            kinds = (OPPOSITE[change.kind], OPPOSITE[change.kind], change.kind)
            said = maker.change("d", kinds) if random.random() < 0.5 else Op(kinds[0], "d", change.values)  # type: ignore[arg-type]
            maker.regular.append(RegularProgram(writer, SPAN_S * random.uniform(0.3, 2), (said,)))
    for _ in range(random.randint(1, 4)):
        op = random.choice((maker.change(), Op("sub", "e", maker.values()), Op("adv", "e", maker.values())))
        start = 0.5 * SPAN_S * random.random()
        maker.transactions.append(TxProgram(random.choice(others), random.choice(quick), (op,), start))
    program = maker.program()
    link, home = (f"client:{slow}", f"broker:{maker.homes[slow]}"), random.choice((20.0, 50.0))
    return structs.replace(program, slowness=program.slowness | {f"{link[0]}>{link[1]}": home})


def twins(seed: int, protocols: Sequence[Protocol]) -> Program:
    """Clients come back at two brokers at once: who is let in speaks while the other one is still being refused."""
    maker = Maker("twins", seed, protocols)
    random = maker.random
    maker.brokers, maker.links = tree(random, random.randint(2, 6))
    maker.homes = {client: random.choice(maker.brokers) for client in maker.clients}
    for client in maker.clients:
        maker.setup += [(client, Op("adv", "d", VALUES))] if random.random() < 0.6 else []
        maker.setup += [(client, maker.change("d", ("sub",)))] if random.random() < 0.4 else []
    for client in random.sample(maker.clients, random.randint(1, 2)):
        time, back_after = SPAN_S * random.random() / 2, 10 ** random.uniform(-3, -2)
        one, other = random.sample(maker.brokers, 2)
        kind = random.choice(("crash", "leave"))
        maker.faults.append(Fault(kind, client, time, 0, back_after, one, other))  # type: ignore[arg-type]
        for _ in range(random.randint(1, 2)):
            said = (maker.change(), maker.publication(), maker.change())
            start = time + back_after + SPAN_S * random.random()
            maker.regular.append(RegularProgram(client, start, said))
        body = (maker.change(), Op("tcm", to=client, nested=((client, (maker.change(),)),)))
        coordinator = random.choice([other for other in maker.clients if other != client])
        start = time + back_after + SPAN_S * random.random()
        maker.transactions.append(TxProgram(coordinator, random.choice(maker.protocols), body, start))
    return maker.program()
