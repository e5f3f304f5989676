"""A program on links that carry frames over connections: small windows, connections that are lost."""

from __future__ import annotations

from random import Random

from msgspec import structs

from broker.protocol.hops import broker_hop, client_hop
from broker.protocol.link import WINDOW_BYTES
from labctl.simulate.programs.maker import SPAN_S
from labctl.simulate.programs.programs import Cut, Program

WINDOWS = (1, 100, 400, 2000, WINDOW_BYTES)
"""From a message at a time to the real one."""
OUTAGE_S = 0.01


def carried(program: Program, random: Random, cut: float = 0.0) -> Program:
    """`cut`: how often each link loses its connection, in the mean; 0: as often as chance says."""
    rate = cut or random.choice((0.0, 0.1, 0.3, 1.0))
    pairs = [(broker_hop(a), broker_hop(b)) for a, b in program.links]
    pairs += [(client_hop(client), broker_hop(home)) for client, home in program.homes.items()]
    cuts = []
    for one, other in pairs:
        while random.random() < rate / (1 + rate):
            time = 2 * SPAN_S * random.random()
            cuts.append(Cut(f"{one}>{other}", time, random.choice((0.0, OUTAGE_S)) * random.random()))
    return structs.replace(program, window_bytes=random.choice(WINDOWS), cuts=tuple(cuts))
