"""Who is let in, and what the others are told; pure.

A refusal is a `Goodbye` with a sentence that names the brokers concerned and what to do.
"""

from __future__ import annotations

from broker.config import NodeConfig
from broker.protocol.link import Link
from broker.protocol.messages import Goodbye, Hello
from broker.protocol.wire import PROTOCOL_VERSION, WireError

DEPARTED_MAX = 100
Loss = tuple[str, Goodbye]
"""A neighbour that has lost something that the other knows, and what is said about that."""


def check(hello: Hello) -> None:
    """What no honest peer would say."""
    if hello.version != PROTOCOL_VERSION:
        raise WireError(f"protocol version {hello.version}; this broker speaks {PROTOCOL_VERSION}")
    if hello.role != "monitor" and hello.incarnation <= 0:
        raise WireError(f"an incarnation is above 0, not {hello.incarnation}")


def refusal(hello: Hello, config: NodeConfig) -> Goodbye | None:
    """Why whoever says this is not let in, as far as the configuration tells."""
    if hello.role == "broker":
        return _refusal_of_broker(hello, config)
    if hello.peer not in ("", config.id):
        return Goodbye("refused", f"This is broker {config.id}, not {hello.peer}.")
    return None


def _refusal_of_broker(hello: Hello, config: NodeConfig) -> Goodbye | None:
    me, name = config.id, hello.name
    if name == me:
        return Goodbye("duplicate-id", f"Two brokers call themselves {me}.")
    if hello.peer not in ("", me):
        reason = (
            f"Broker {name} looks for {hello.peer} where {me} listens; correct the address of {hello.peer}."
        )
        return Goodbye("unknown-neighbour", reason)
    neighbour = next((n for n in config.neighbours if n.id == name), None)
    if neighbour is None:
        reason = f"Broker {me} does not know {name} as a neighbour; add it to {me}'s neighbours."
        return Goodbye("unknown-neighbour", reason)
    if neighbour.address:
        reason = f"Brokers {me} and {name} dial each other; remove the address from one side of the link."
        return Goodbye("both-dial", reason)
    if hello.overlap != config.overlap:
        reason = f"Broker {me} has overlap {config.overlap!r}, {name} has {hello.overlap!r}; they must agree."
        return Goodbye("overlap-mode", reason)
    return None


def lost_state(hello: Hello, broker: str, incarnation: int, known_incarnation: int) -> str:
    """Which of two neighbours is not the process it was when they last spoke; empty if both are."""
    if known_incarnation not in (0, hello.incarnation):
        return hello.name
    if hello.peer_incarnation not in (0, incarnation):
        # Whoever has spoken with us in this life knows it.
        return hello.name if known_incarnation else broker
    return ""


def state_lost(broker: str) -> Goodbye:
    reason = f"Broker {broker} has restarted and lost its state; restart the whole overlay."
    return Goodbye("state-lost", reason)


def fallen_back(link: Link, received: int, me: str, other: str) -> Loss | None:
    """Which of two neighbours goes on from an older state than the other knows, if one does.

    By how many of our messages the other says to have processed. So much is lost with a machine, or with a data folder
    that was brought back from a copy.
    """
    if received > link.taken:
        return me, is_older(me, other)
    return (other, is_older(other, me)) if received < link.sent_processed else None


def is_older(broker: str, other: str) -> Goodbye:
    reason = (
        f"Broker {broker} has gone back to an older state than {other} knows, and its data folder is of no use any"
        " more; restart the whole overlay."
    )
    return Goodbye("state-lost", reason)


def in_use(client: str, broker: str, address: str) -> Goodbye:
    return Goodbye("in-use", f"The client id {client} is in use at broker {broker}, from {address}.")


def away_too_long(client: str, broker: str, grace_ms: float) -> Goodbye:
    where = f"The session of {client} at broker {broker}"
    return Goodbye(
        "state-lost", f"{where} has ended: it was away for more than {grace_ms:.0f} ms; connect anew."
    )


def replaced(client: str, broker: str) -> Goodbye:
    where = f"The session of {client} at broker {broker}"
    return Goodbye("state-lost", f"{where} has ended: another client has come by that name.")


def too_slow(client: str, queue_bytes: int, limit: int) -> Goodbye:
    reason = f"{client} is too slow: {queue_bytes} bytes wait for it; the limit is {limit}."
    return Goodbye("slow-consumer", reason)


def is_return(hello: Hello) -> bool:
    """The client means to go on with a session, not to begin one."""
    return bool(hello.received or hello.peer_incarnation)


class Departed:
    """Sessions that were ended from this side, newest last: `status` shows them, and a client that
    comes back too late is told why."""

    def __init__(self) -> None:
        self._goodbyes: dict[tuple[str, int], Goodbye] = {}

    def add(self, client: str, incarnation: int, goodbye: Goodbye) -> None:
        self._goodbyes[client, incarnation] = goodbye
        if len(self._goodbyes) > DEPARTED_MAX:
            del self._goodbyes[next(iter(self._goodbyes))]

    def goodbye(self, client: str, incarnation: int, broker: str) -> Goodbye:
        """To a client that asks for a session that is no more."""
        unknown = Goodbye(
            "state-lost", f"Broker {broker} does not know this session of {client}; connect anew."
        )
        return self._goodbyes.get((client, incarnation), unknown)

    def as_list(self) -> list[dict[str, str]]:
        return [
            {"client": client, "code": goodbye.code, "reason": goodbye.reason}
            for (client, _), goodbye in self._goodbyes.items()
        ]
