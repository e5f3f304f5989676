"""Random programs that aim at narrow windows: attraction, crossing advertisements, clients lost midway."""

from __future__ import annotations

from collections.abc import Sequence

from broker.protocol.vocabulary import Protocol
from labctl.simulate.programs.maker import SPAN_S, VALUES, Maker
from labctl.simulate.programs.programs import Fault, Op, Program, RegularProgram, TxProgram


def carve(seed: int, protocols: Sequence[Protocol]) -> Program:
    """Little is advertised at first: records wait, and are attracted in another order than they were issued."""
    maker = Maker("carve", seed, protocols)
    random, clients = maker.random, maker.clients
    for client in clients:
        kinds = random.choices(("sub", "usub", "adv"), (3, 2, 1), k=random.randint(0, 3))
        maker.setup += [(client, maker.change("d", (kind,))) for kind in kinds]
    for _ in range(random.randint(2, 4)):
        coordinator, protocol = random.choice(clients), random.choice(maker.protocols)
        body: list[Op] = []
        for _ in range(random.randint(1, 3)):
            op = maker.change("d", ("sub", "usub", "adv", "adv", "uadv"))
            client = random.choice(clients)
            if client != coordinator:
                op = Op("tcm", to=client, nested=((client, (op, maker.change())),))
            elif op.kind == "adv":
                body.append(op)
                op = Op("pub", "d", op.values[:1])
            body.append(op)
        maker.add(coordinator, protocol, tuple(body), 0.3)
    maker.add_regular(random.randint(0, 2))
    return maker.program()


def crossing(seed: int, protocols: Sequence[Protocol]) -> Program:
    """Transactions that subscribe to what another one is about to advertise."""
    maker = Maker("crossing", seed, protocols)
    random, clients = maker.random, maker.clients
    count = random.randint(2, 3)
    for number in range(count):
        coordinator, *others = random.sample(clients, 3)
        mine, next_ = (number,), ((number + 1) % count,)
        asked = [Op("sub", "d", next_), Op(random.choice(("sub", "usub")), "d", mine)]
        random.shuffle(asked)
        body = [Op("tcm", to=c, nested=((c, (op,)),)) for c, op in zip(others, asked, strict=True)]
        body[random.randint(0, 2) : 0] = [Op("adv", "d", random.choice((mine, next_, (0, 1, 2))))]
        if random.random() < 0.5:
            advertiser = random.choice(others)
            nested = (Op("adv", "d", next_), Op("pub", "d", next_))
            body.append(Op("tcm", to=advertiser, nested=((advertiser, nested),)))
        maker.add(coordinator, random.choice(maker.protocols), tuple(body), 0.1)
    return maker.program()


def circular(seed: int, protocols: Sequence[Protocol]) -> Program:
    """Participants ask their coordinator back, and somebody gives up, or goes, while they do."""
    maker = Maker("circular", seed, protocols, 4)
    random = maker.random
    maker.setup += [(client, Op("adv", "d", VALUES)) for client in maker.clients]
    maker.setup += [(client, Op("sub", "d", maker.values())) for client in maker.clients[:3]]
    for _ in range(random.randint(1, 2)):
        coordinator, other, third = random.sample(maker.clients, 3)
        back = tuple(
            random.choice((maker.publication(), maker.change("d", ("sub", "usub")))) for _ in range(3)
        )
        inner = (
            Op("tcm", to=coordinator, nested=((coordinator, back),)),
            *(maker.publication() for _ in range(random.randint(0, 2))),
        )
        if random.random() < 0.5:
            inner = (Op("tcm", to=third, nested=((third, inner),)),)
        body = (Op("tcm", to=other, nested=((other, inner),)), maker.publication())
        maker.add(coordinator, random.choice(maker.protocols), body, 0.3)
        if random.random() < 0.8:
            kind = random.choice(("crash", "crash", "leave"))
            struck, time = random.choice((coordinator, other, third)), random.random() * SPAN_S * 2
            maker.faults.append(Fault(kind, struck, time, random.choice((0, 1, 2))))  # type: ignore[arg-type]
    return maker.program()


def beside(seed: int, protocols: Sequence[Protocol]) -> Program:
    """Regular publications, while transactions move subscriptions, or nearly do."""
    maker = Maker("beside", seed, protocols, 5)
    random, clients = maker.random, maker.clients
    for client in clients:
        if random.random() < 0.8:
            maker.setup.append((client, Op("adv", "d", VALUES)))
        maker.setup.append((client, Op("sub", "d", maker.values())))
    for _ in range(random.randint(1, 3)):
        coordinator, other = random.sample(clients, 2)
        changes = (maker.change(), maker.change("d", ("usub", "sub", "adv")))
        body = (maker.change("d", ("usub", "uadv", "sub")), Op("tcm", to=other, nested=((other, changes),)))
        maker.add(coordinator, random.choice(maker.protocols), body, 0.6)
    for client in random.sample(clients, 2):
        start = random.random() * SPAN_S / 3
        for place in range(6):
            time = start + place * SPAN_S / 5
            maker.regular.append(RegularProgram(client, time, (maker.publication(),)))
    return maker.program()


def lost(seed: int, protocols: Sequence[Protocol]) -> Program:
    """Participants go in the midst of it: everybody takes part, advertises and subscribes, and begins at once."""
    maker = Maker("lost", seed, protocols)
    random, clients = maker.random, maker.clients
    for client in clients:
        maker.setup += [(client, Op("adv", "d", (0, 1)))] if random.random() < 0.6 else []
        maker.setup += [(client, maker.change("d", ("sub",)))] if random.random() < 0.4 else []
    for _ in range(random.randint(1, 2)):
        coordinator, *others = random.sample(clients, len(clients))
        body: tuple[Op, ...] = (Op("pub", "d", (0,)),)
        for client in others:
            changes = [maker.change("d", ("sub", "usub", "adv")) for _ in range(random.randint(1, 2))]
            nested = (*changes, *body) if random.random() < 0.4 else (*body, *changes)
            asked = Op("tcm", to=client, nested=((client, nested),))
            body = (asked,) if random.random() < 0.4 else (asked, maker.change("d", ("sub", "adv")))
        maker.transactions.append(TxProgram(coordinator, random.choice(maker.protocols), body))
    for client in random.sample(clients, random.randint(1, 2)):
        kind = random.choice(("crash", "leave"))
        maker.faults.append(Fault(kind, client, random.random() * SPAN_S, random.choice((0, 0, 1))))  # type: ignore[arg-type]
    return maker.program()


def turns(seed: int, protocols: Sequence[Protocol]) -> Program:
    """Who is asked back has spoken already of what comes later in the plan, and speaks once more beside it."""
    maker = Maker("turns", seed, protocols, 5)
    random, clients = maker.random, maker.clients
    for client in clients:
        kinds = random.choices(("sub", "usub", "adv"), (2, 1, 3), k=random.randint(0, 2))
        maker.setup += [(client, maker.change("d", (kind,))) for kind in kinds]
    for _ in range(random.randint(1, 2)):
        coordinator, other, third = random.sample(clients, 3)
        first, last = random.choice((("sub", "usub"), ("usub", "sub"), ("adv", "uadv"), ("uadv", "adv")))
        asked, speaker = (other, coordinator) if random.random() < 0.6 else (third, other)
        back = Op("tcm", to=speaker, nested=((speaker, (maker.change("d", (first,)),)),))
        body: tuple[Op, ...] = (Op("tcm", to=asked, nested=((asked, (back,)),)), maker.change("d", (last,)))
        if speaker == other:
            body = (Op("tcm", to=other, nested=((other, body),)),)
        maker.add(coordinator, random.choice(maker.protocols), body, 0.15)
        if random.random() < 0.5:
            start = random.random() * SPAN_S
            maker.regular.append(RegularProgram(speaker, start, (maker.change("d", (first, last)),)))
    return maker.program()


def sequel(seed: int, protocols: Sequence[Protocol]) -> Program:
    """Regular changes and publications behind transactions, of what these have changed, and before the next ones."""
    maker = Maker("sequel", seed, protocols, 5)
    random, clients = maker.random, maker.clients
    maker.standard_setup()
    for _ in range(random.randint(1, 3)):
        coordinator, other = random.sample(clients, 2)
        asked = Op("tcm", to=other, nested=((other, (maker.change(), maker.change())),))
        maker.add(coordinator, random.choice(maker.protocols), (maker.change(), asked), 0.2)
    for client in random.sample(clients, random.randint(1, 3)):
        start = SPAN_S * (1 + 4 * random.random())
        maker.regular.append(
            RegularProgram(client, start, (maker.change(), maker.publication(), maker.change()))
        )
    return maker.program()


def returning(seed: int, protocols: Sequence[Protocol]) -> Program:
    """Clients go and come back with their ids, there or elsewhere, while others ask them; they know nothing then."""
    maker = Maker("returning", seed, protocols)
    random, clients = maker.random, maker.clients
    for client in clients:
        maker.setup += [(client, Op("adv", "d", VALUES))] if random.random() < 0.6 else []
        maker.setup += [(client, maker.change("d", ("sub",)))] if random.random() < 0.4 else []
    struck = random.sample(clients, random.randint(1, 2))
    for client in struck:
        kind, time = random.choice(("crash", "leave")), random.random() * SPAN_S / 2
        back_after = 10 ** random.uniform(-4, -2)
        back_at = random.choice((*maker.brokers, "", ""))
        fault = Fault(kind, client, time, random.choice((0, 0, 1)), back_after, back_at)  # type: ignore[arg-type]
        maker.faults.append(fault)
        if random.random() < 0.3:
            again = time + back_after + random.random() * SPAN_S / 3
            maker.faults.append(Fault("crash", client, again, 0, back_after))
        if random.random() < 0.4:
            said = (Op("adv", "d", VALUES), maker.change("d", ("sub",)), maker.publication())
            maker.regular.append(RegularProgram(client, time + back_after + SPAN_S / 10, said))
    for _ in range(random.randint(2, 4)):
        coordinator, *others = random.sample(clients, 3)
        coordinator = random.choice((coordinator, random.choice(struck)))
        body: tuple[Op, ...] = (maker.publication(),)
        for client in (c for c in (*others, random.choice(struck)) if c != coordinator):
            changes = [maker.change("d", ("sub", "usub", "adv")) for _ in range(random.randint(1, 2))]
            asked = Op("tcm", to=client, nested=((client, (*changes, *body)),))
            body = (asked, *body) if random.random() < 0.5 else (asked,)
        maker.add(coordinator, random.choice(maker.protocols), body)
    return maker.program()


def handover(seed: int, protocols: Sequence[Protocol]) -> Program:
    """Events are published all the time, regularly, while their owners hand them on to each other."""
    maker = Maker("handover", seed, protocols, 6)
    random, (engine, *owners) = maker.random, maker.clients
    maker.setup.append((engine, Op("adv", "d", VALUES)))
    owner = {value: random.choice(owners) for value in random.sample(VALUES, random.randint(1, 2))}
    maker.setup += [(client, Op("sub", "d", (value,))) for value, client in owner.items()]
    for number in range(random.randint(1, 3)):
        value = random.choice(list(owner))
        new = random.choice([client for client in owners if client != owner[value]])
        taken = Op("tcm", to=new, nested=((new, (Op("sub", "d", (value,)),)),))
        given = Op("usub", "d", (value,))
        asked = random.choice(((taken, given), (given, taken)))
        body: tuple[Op, ...] = (Op("tcm", to=owner[value], nested=((owner[value], asked),)),)
        start = 2 * SPAN_S * (number + random.random())
        coordinator = random.choice((engine, engine, *owners))
        if coordinator == owner[value]:
            body = asked
        elif coordinator == new:
            body = (Op("sub", "d", (value,)), Op("tcm", to=owner[value], nested=((owner[value], (given,)),)))
        maker.transactions.append(TxProgram(coordinator, random.choice(maker.protocols), body, start))
        owner[value] = new
    for value in owner:
        for place in range(60):
            time = place * SPAN_S / 8 * random.uniform(0.9, 1.1)
            maker.regular.append(RegularProgram(engine, time, (Op("pub", "d", (value,)),)))
    return maker.program()
