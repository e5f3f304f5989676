"""How many messages a dispatching transaction should cost: the cost model beside which the report puts what
was counted.

d is the number of broker links between two clients' edge brokers, N the number of brokers. The agent's
acknowledgement to the environment, which the experiments add to every approach, is included; so are the
two messages by which BL-WAIT's agent and dispatcher hear that their edge brokers have taken `sub` and `usub`, and
the word to every broker that all have committed, by which D-TX and S-TX let the dispatcher's `usub` count for
everybody. The other protocols send that word twice a second at most, for many transactions at once: it is not
counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from broker.protocol.vocabulary import ISOLATED, S_TX
from client.scenarios.approaches import Family, approach_of
from labctl import topology

_CLIENT = re.compile(
    r"(?P<role>E|D|A1|A2)(?:[-._/](?P<copy>\d+))?$|(?:c?(?P<first>\d+)[-._/])(?P<name>E|D|A1|A2)$"
)
PARTICIPANTS = 2
"""Beside the coordinator: the dispatcher and one agent."""
ACCEPTED = 2
"""Regular operations are answered by the edge broker; within a transaction nothing answers them one by one."""


def messages(approach: str, brokers: int, placement: Mapping[str, str]) -> float | None:
    """Messages per dispatching transaction: the mean over copies and over both agents. None: no model."""
    tree = topology.standard(brokers)
    found = [
        value
        for clients in _copies(placement)
        for agent in ("A1", "A2")
        if (value := _of(approach, tree, clients["E"], clients["D"], clients[agent])) is not None
    ]
    return sum(found) / len(found) if found else None


def _copies(placement: Mapping[str, str]) -> list[dict[str, str]]:
    copies: dict[str, dict[str, str]] = {}
    for client, broker in placement.items():
        if (match := _CLIENT.match(client)) is not None:
            role = match["role"] or match["name"]
            copies.setdefault(match["copy"] or match["first"] or "", {})[role] = broker
    return [clients for clients in copies.values() if len(clients) == 4]


def _of(approach: str, tree: topology.Topology, e: str, d: str, a: str) -> float | None:
    size = len(tree.brokers)
    e_d, d_a, e_a = (len(tree.path(*pair)) - 1 for pair in ((e, d), (d, a), (e, a)))
    acknowledgement = 2 + e_a
    match approach_of(approach).family:
        case Family.D_TX:
            operations = 4 * e_d + 2 * d_a + 4 * e_a + 16
            over = size - 1 if approach in ISOLATED else 0
            return 6 * size + operations + 2 * PARTICIPANTS + over + acknowledgement
        case Family.S_TX if approach == S_TX:
            return 14 + 2 * e_d + d_a + 2 * e_a + 3 * (size - 1) + acknowledgement
        case Family.BL_WAIT:
            return 10 + 2 * e_d + d_a + 3 * e_a + ACCEPTED
        case _:
            return None
