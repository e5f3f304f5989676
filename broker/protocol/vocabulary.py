"""Words that all messages share: their base, kinds of operations, places in the order, names of protocols."""

from __future__ import annotations

from typing import Final, Literal, get_args

from msgspec import Struct

Kind = Literal["adv", "uadv", "sub", "usub"]
Key = tuple[int, str]
"""Place of a transaction in the commit order: (epoch, transaction id); `NO_KEY` before the first."""
NO_KEY: Key = (0, "")
Stamp = tuple[Key, int, int, int]
"""(key, class, incarnation, number): orders the records of one client, and only those."""
NO_STAMP: Stamp = (NO_KEY, 0, 0, 0)

# The transaction protocols by name, as they stand on the wire, in histories and on command lines. Whoever means
# one of them uses its constant, whoever means a kind asks the sets below. What experiments compare, labels and
# colours included, is in `client.scenarios.approaches`.

Mode = Literal["d-tx", "d-tx-optimistic", "d-tx-ni"]
"""D-TX: participants are found while it runs. `Begin` says which."""
PlanMode = Literal["s-tx", "s-tx-safe"]
"""S-TX: the coordinator knows everything beforehand. On the wire `safe` says which."""
Protocol = Literal[Mode, PlanMode]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)

D_TX: Final = "d-tx"
D_TX_OPTIMISTIC: Final = "d-tx-optimistic"
D_TX_NI: Final = "d-tx-ni"
S_TX: Final = "s-tx"
S_TX_SAFE: Final = "s-tx-safe"

ISOLATED: frozenset[Protocol] = frozenset({D_TX, D_TX_OPTIMISTIC})
"""Serializable in the order of keys; the others on disjoint spaces only."""
PLANNED: frozenset[Protocol] = frozenset(get_args(PlanMode))
SAFE: frozenset[Protocol] = frozenset({S_TX_SAFE})
"""Plans that are voted on: nothing of one may commit when a step of it cannot come any more."""


class Message(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """Base of all messages: one array, tag first."""


def plan_mode(safe: bool) -> PlanMode:
    return S_TX_SAFE if safe else S_TX
