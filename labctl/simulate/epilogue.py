"""The last act of every schedule: when all is quiet, every client publishes every event there is.

It does so through its library, and past it what that does not let through: the broker has to refuse it. What comes
of it is judged by `labctl.checks.beside` from what the clients did before. It leaves no trace: neither its messages
nor what was delivered count.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.protocol.filters import Event
from broker.protocol.messages import Publish
from client.core.errors import NotAdvertised
from labctl.checks.beside import LastWord
from labctl.simulate.clients import SimClient
from labctl.simulate.world import World


def last_words(world: World, events: Sequence[Event]) -> list[LastWord]:
    """In the order of clients and events. Those of one client are sent at one moment."""
    present = [client for client in world.clients.values() if client.is_alive]
    words = [LastWord(client.client_id, event, _admitting(world, client, event))
             for client in present for event in events]  # fmt: skip
    heard = {client: (len(client.deliveries), len(client.refusals)) for client in present}
    past = (world.keeps_history, world.messages, len(world.passages))
    world.keeps_history = False
    for place, client in enumerate(present):
        world.spawn(_speak(client, words, place * len(events), len(events)))
    world.run()
    world.keeps_history, world.messages, passages = past
    del world.passages[passages:]
    for client, (deliveries, refusals) in heard.items():
        for publication, _ in client.deliveries[deliveries:]:
            words[int(publication.payload)].receivers.append(client.client_id)
        reasons = client.refusals[refusals:]
        for word in words if reasons else ():
            if word.client == client.client_id:
                word.is_refused = any(reason.startswith(f"{word.event} ") for reason in reasons)
        del client.deliveries[deliveries:], client.refusals[refusals:]
    return words


async def _speak(client: SimClient, words: Sequence[LastWord], first: int, count: int) -> None:
    for place in range(first, first + count):
        word, payload = words[place], str(place).encode()
        try:
            await client.publish(word.event, payload)
        except NotAdvertised:
            word.is_let_through = False
            client.send(Publish(client.transactions.draw_id(), word.event, payload))


def _admitting(world: World, client: SimClient, event: Event) -> frozenset[str]:
    """The brokers that would let it publish the event in a transaction."""
    name = client.client_id
    hops = ((broker, broker.state.hop_to(name)) for broker in world.brokers.values())
    return frozenset(
        broker.id for broker, hop in hops if hop is not None and broker.routing.srt.admits(name, hop, event)
    )
