"""Random programs about what is over: long ones that undo themselves, time that runs out, and crowds."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from msgspec import structs

from broker.protocol.limits import Limits
from broker.protocol.vocabulary import D_TX, ISOLATED, Protocol
from labctl.simulate.programs.maker import VALUES, Maker
from labctl.simulate.programs.programs import Op, Program, RegularProgram, TxProgram

CROWD_EVERY = 40
"""In one of so many crowds there are more transactions than brokers remember."""
CROWD = 450
TIMEOUTS_S = (inf, inf, 0.005, 0.02, 0.1)
"""Of clients: from less than an answer takes to more than a transaction."""


def undo(seed: int, protocols: Sequence[Protocol]) -> Program:
    """A dozen transactions that take back what others have done, and are over before the next one or not."""
    maker = Maker("undo", seed, protocols, 5)
    random, clients = maker.random, maker.clients
    maker.expire_s = 0.02
    for client in clients:
        kinds = random.choices(("adv", "uadv", "sub", "usub"), (3, 2, 2, 1), k=random.randint(1, 4))
        maker.setup += [(client, maker.change("d", (kind,))) for kind in kinds]
    span_s = 0.0
    for _ in range(random.randint(6, 12)):
        coordinator, protocol = random.choice(clients), random.choice(maker.protocols)
        changes = [(random.choice(clients), maker.change()) for _ in range(random.randint(1, 3))]
        body = [
            op if client == coordinator else Op("tcm", to=client, nested=((client, (op,)),))
            for client, op in changes
        ]
        if random.random() < 0.3:
            body.append(maker.publication())
        span_s += random.choice((0.0, 0.005, 0.05, 0.15))
        maker.transactions.append(TxProgram(coordinator, protocol, tuple(body), span_s))
    for _ in range(random.randint(0, 3)):
        ops = tuple(maker.change("d", ("adv", "uadv", "sub", "usub")) for _ in range(2))
        maker.regular.append(RegularProgram(random.choice(clients), random.random() * span_s, ops))
    return maker.program()


def hurried(seed: int, protocols: Sequence[Protocol]) -> Program:
    """Lifetimes and patience end in the midst of it, brokers wait hardly for anybody, and somebody is slow to decide."""
    maker = Maker("hurried", seed, protocols, 5)
    random = maker.random
    maker.expire_s = random.choice((0.001, 0.005))
    longest = random.choice((50, 100, 60_000))
    maker.limits = Limits(
        plan_lifetime_ms=random.choice((10, 25, 50, 30_000)),
        lifetime_ms_max=longest,
        unheard_ms=random.choice((2, 5, 20, 500)),
    )
    maker.standard_setup()
    for _ in range(random.randint(1, 4)):
        maker.transaction()
    lifetimes = (20, 50, 50, 100, longest, longest + random.randint(0, 1))
    maker.transactions = [
        structs.replace(t, lifetime_ms=random.choice(lifetimes)) for t in maker.transactions
    ]
    program = maker.program()
    client = random.choice(maker.clients)
    slow = {f"client:{client}>broker:{maker.homes[client]}": random.choice((5.0, 50.0, 1500.0))}
    conditions = structs.replace(program.conditions, timeout_s=random.choice(TIMEOUTS_S))
    return structs.replace(program, slowness=program.slowness | slow, conditions=conditions)


def crowd(seed: int, protocols: Sequence[Protocol]) -> Program:
    """Many small transactions, and slow ones that began before them."""
    maker = Maker("crowd", seed, protocols, 2)
    random = maker.random
    count = CROWD if seed % CROWD_EVERY == 0 else random.randint(12, 30)
    for client in maker.clients:
        maker.setup += [(client, Op("adv", "d", VALUES)), (client, maker.change("d", ("sub",)))]
    slow, *others = maker.clients
    quick = [p for p in maker.protocols if p in ISOLATED and p != D_TX] or maker.protocols
    for _ in range(2):
        body = (maker.publication(), maker.change("d", ("sub", "usub")))
        maker.add(slow, random.choice(maker.protocols), body, 0.0)
    for number in range(count):
        op = maker.publication() if random.random() < 0.4 else maker.change("d", ("sub", "usub"))
        start_s = 0.002 * number + 0.01 * random.random()
        maker.transactions.append(TxProgram(random.choice(others), random.choice(quick), (op,), start_s))
    program = maker.program()
    late = {f"client:{slow}>broker:{maker.homes[slow]}": 0.4 * count}
    return structs.replace(program, slowness=program.slowness | late)
