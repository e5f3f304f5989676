"""Programs on links that carry frames over connections: small windows, connections that are lost."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from msgspec import structs

from broker.protocol.hops import broker_hop, client_hop
from broker.protocol.link import WINDOW_BYTES
from broker.protocol.vocabulary import Protocol
from labctl.simulate.programs.maker import SPAN_S, Maker
from labctl.simulate.programs.programs import UNLIMITED_BYTES, Cut, Fault, Program, RegularProgram

WINDOWS = (1, 100, 400, 2000, WINDOW_BYTES)
"""From a message at a time to the real one."""
PRESSED = (1, 60, 150, 400)
QUEUES_BYTES = (UNLIMITED_BYTES, UNLIMITED_BYTES, UNLIMITED_BYTES, 400)
"""What may wait for a client: in every fourth program clients can be too slow."""
OUTAGE_S = 0.01


def carried(program: Program, random: Random, cut: float = 0.0) -> Program:
    """`cut`: how often each link loses its connection, in the mean; 0: as often as chance says."""
    rate = cut or random.choice((0.0, 0.1, 0.3, 1.0))
    cuts = cuts_of(program, random, rate, 2 * SPAN_S)
    return _limited(structs.replace(program, window_bytes=random.choice(WINDOWS), cuts=cuts))


def _limited(program: Program) -> Program:
    """With chance of its own: all else of a seed stays the same."""
    return structs.replace(program, queue_bytes_max=Random(f"queue {program.seed}").choice(QUEUES_BYTES))


def cuts_of(program: Program, random: Random, rate: float, span_s: float) -> tuple[Cut, ...]:
    pairs = [(broker_hop(a), broker_hop(b)) for a, b in program.links]
    pairs += [(client_hop(client), broker_hop(home)) for client, home in program.homes.items()]
    cuts = []
    for one, other in pairs:
        while random.random() < rate / (1 + rate):
            seconds = random.choice((0.0, OUTAGE_S)) * random.random()
            cuts.append(Cut(f"{one}>{other}", span_s * random.random(), seconds))
    return tuple(cuts)


def pressed(seed: int, protocols: Sequence[Protocol]) -> Program:
    """Steady publications to clients that are slow, through small windows: what is full makes others wait."""
    maker = Maker("pressed", seed, protocols, 4)
    random = maker.random
    maker.standard_setup()
    for _ in range(random.randint(0, 2)):
        maker.transaction()
    span_s = 3 * SPAN_S
    for _ in range(random.randint(10, 30)):
        client, start = random.choice(maker.clients[:2]), span_s * random.random()
        body = tuple(maker.publication() for _ in range(random.choice((1, 1, 2, 5))))
        maker.regular.append(RegularProgram(client, start, body))
        if random.random() < 0.1:
            maker.regular.append(RegularProgram(client, start, (maker.change(),)))
    slow = random.sample(maker.clients, 2)
    if random.random() < 0.3:
        maker.faults.append(Fault(random.choice(("crash", "leave")), slow[0], span_s * random.random()))
    program = maker.program()
    slowness = dict(program.slowness)
    for client in slow:
        one, other = client_hop(client), broker_hop(program.homes[client])
        slowness |= {link: 10 ** random.uniform(0.5, 1.3) for link in (f"{one}>{other}", f"{other}>{one}")}
    cuts = cuts_of(program, random, 1.5, span_s)
    window_bytes = random.choice(PRESSED)
    return _limited(structs.replace(program, slowness=slowness, cuts=cuts, window_bytes=window_bytes))
