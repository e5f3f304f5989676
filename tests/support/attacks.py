"""What a hostile connection does, one short story each, and how the broker may answer it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from broker.protocol import messages, wire
from broker.protocol.filters import make_filter
from broker.protocol.limits import Limits
from broker.protocol.messages import Goodbye, Join, Publish, Request, Settle, StatusRequest, Welcome
from broker.protocol.stx import Planned, Step
from broker.protocol.wire import BODY_BYTES_MAX, HEADER, MESSAGE_BYTES_MAX
from tests.support.hostile import Hostile
from tests.support.rawpeer import RawPeer, frame, frame_of, hello

NO_REPLY = "no reply"
"""The peer is gone, or has said goodbye itself: there is nobody to tell."""
ALIVE = "alive"
"""What came was hostile and yet within the protocol; each message got its own answer."""

Attack = Callable[[RawPeer], Coroutine[Any, Any, str]]

ATTACKS: dict[Attack, tuple[str, ...]] = {}
"""With the codes of the goodbyes that they may be answered with."""


def attack(*answers: str) -> Callable[[Attack], Attack]:
    def register(function: Attack) -> Attack:
        ATTACKS[function] = answers
        return function

    return register


async def told(peer: RawPeer) -> str:
    goodbye = await peer.goodbye()
    assert goodbye is None or (goodbye.reason and len(goodbye.reason) <= wire.REASON_LENGTH_MAX)
    return goodbye.code if goodbye is not None else NO_REPLY


@attack("protocol")
async def garbage(peer: RawPeer) -> str:
    await peer.send(b"\xff" + peer.random.randbytes(peer.random.randrange(100, 2000)))
    return await told(peer)


@attack("protocol")
async def a_megabyte_of_garbage(peer: RawPeer) -> str:
    """More than the broker has read when it says goodbye: the reason must arrive all the same."""
    await peer.send(b"\xff" * (1 << 20))
    return await told(peer)


@attack("protocol")
async def an_http_request(peer: RawPeer) -> str:
    await peer.send(b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n")
    return await told(peer)


@attack("protocol")
async def undecodable_body(peer: RawPeer) -> str:
    await peer.send(
        frame_of(b"\xc1" + peer.random.randbytes(peer.random.randrange(200)), peer.random.randrange(2))
    )
    return await told(peer)


@attack("protocol")
async def deep_nesting(peer: RawPeer) -> str:
    await peer.send(frame_of(b"\x91" * 10_000))
    return await told(peer)


@attack("protocol")
async def declared_length(peer: RawPeer) -> str:
    await peer.send(frame_of(b"\xdd\xff\xff\xff\xff"))
    return await told(peer)


@attack(NO_REPLY)
async def truncated_frame(peer: RawPeer) -> str:
    data = frame(hello())
    await peer.send(data[: peer.random.randrange(1, len(data))])
    peer.hang_up()
    return NO_REPLY


@attack(NO_REPLY)
async def reset_in_mid_frame(peer: RawPeer) -> str:
    await peer.join(f"reset-{peer.random.random()}")
    await peer.send(frame(Request(1, "sub", make_filter({})), first=1)[:-2])
    peer.reset()
    return NO_REPLY


@attack(NO_REPLY)
async def connect_and_leave(peer: RawPeer) -> str:
    peer.hang_up()
    return NO_REPLY


@attack("protocol")
async def over_the_limit(peer: RawPeer) -> str:
    await peer.send(HEADER.pack(peer.random.choice((BODY_BYTES_MAX + 1, 2**32 - 1)), 0, 0))
    return await told(peer)


@attack("protocol")
async def large_before_the_greeting(peer: RawPeer) -> str:
    """What nobody has vouched for gets no megabytes to wait in."""
    await peer.send(HEADER.pack(BODY_BYTES_MAX, 0, 0) + bytes(1000))
    return await told(peer)


@attack("protocol")
async def message_before_greeting(peer: RawPeer) -> str:
    await peer.say(Settle("E", 1), first=1)
    return await told(peer)


@attack("protocol")
async def second_greeting(peer: RawPeer) -> str:
    await peer.greet(hello(f"twice-{peer.random.random()}"))
    await peer.say(hello("twice"))
    return await told(peer)


@attack("protocol")
async def wrong_version(peer: RawPeer) -> str:
    await peer.say(hello(version=peer.random.choice((0, -1, 2, 2**63))))
    return await told(peer)


@attack("protocol")
async def greeting_of_wrong_types(peer: RawPeer) -> str:
    fields: list[object] = [1, 1, "client", "E", "", 1, 0, 0, "all"]
    fields[peer.random.randrange(1, 9)] = peer.random.choice((None, True, -1.5, [], {}, b"E", "nobody"))
    if isinstance(fields[3], str) and isinstance(fields[4], str):
        fields[5] = None
    await peer.send(frame_of(msgspec.msgpack.encode([fields])))
    return await told(peer)


@attack("protocol")
async def greeting_without_a_life(peer: RawPeer) -> str:
    await peer.say(hello("lifeless", incarnation=peer.random.choice((0, -1))))
    return await told(peer)


@attack("protocol")
async def unasked_welcome(peer: RawPeer) -> str:
    if peer.random.random() < 0.5:
        await peer.join(f"welcoming-{peer.random.random()}")
    await peer.say(Welcome("b9", 1, 0, Limits()))
    return await told(peer)


@attack(NO_REPLY)
async def goodbye_first(peer: RawPeer) -> str:
    await peer.say(Goodbye("leaving", "before it came"))
    return await told(peer)


@attack("protocol")
async def status_request_as_a_client(peer: RawPeer) -> str:
    await peer.join(f"curious-{peer.random.random()}")
    await peer.say(StatusRequest(True), first=peer.random.randrange(2))
    return await told(peer)


@attack("protocol")
async def ungreeted_status_request(peer: RawPeer) -> str:
    await peer.say(StatusRequest(True))
    return await told(peer)


@attack("protocol")
async def wrong_number(peer: RawPeer) -> str:
    await peer.join(f"miscounting-{peer.random.random()}")
    await peer.say(Settle("E", 1), first=peer.random.choice((2, 7, 2**64 - 1)))
    return await told(peer)


@attack("protocol")
async def repeated_number(peer: RawPeer) -> str:
    await peer.join(f"repeating-{peer.random.random()}")
    await peer.say(Settle("E", 1), first=1)
    await peer.say(Settle("E", 2), first=1)
    return await told(peer)


@attack("protocol")
async def acknowledgement_of_what_was_never_sent(peer: RawPeer) -> str:
    await peer.join(f"thanking-{peer.random.random()}")
    await peer.say(first=1, processed=peer.random.choice((50, 2**64 - 1)))
    return await told(peer)


@attack("protocol")
async def what_only_brokers_say(peer: RawPeer) -> str:
    await peer.join(f"brokering-{peer.random.random()}")
    await peer.say(
        peer.random.choice((Join("X", 1, "b1"), messages.Leave("honest", 1, "b1"), messages.Accepted(1))),
        first=1,
    )
    return await told(peer)


@attack("protocol")
async def publishing_before_it_has_joined(peer: RawPeer) -> str:
    """In one breath with the greeting."""
    name = f"hasty-{peer.random.random()}"
    await peer.send(frame(hello(name)) + frame(Publish(1, {"n": 1}, b""), first=1))
    return await told(peer)


@attack("in-use")
async def id_in_use(peer: RawPeer) -> str:
    await peer.say(hello("subscriber"))
    return await told(peer)


@attack("refused")
async def unusable_id(peer: RawPeer) -> str:
    await peer.say(hello(peer.random.choice(("", "\n", "\0", "x" * 1025))))
    return await told(peer)


@attack("state-lost")
async def session_that_never_was(peer: RawPeer) -> str:
    await peer.say(hello("returning", received=peer.random.choice((0, 5)), peer_incarnation=7))
    return await told(peer)


@attack("unknown-neighbour")
async def unknown_broker(peer: RawPeer) -> str:
    await peer.say(hello("b9", "broker", peer_incarnation=peer.random.choice((0, 1, 2**63))))
    return await told(peer)


@attack("duplicate-id")
async def the_broker_itself(peer: RawPeer) -> str:
    await peer.say(hello("b1", "broker", peer_incarnation=peer.random.choice((0, 1))))
    return await told(peer)


@attack("state-lost")
async def a_neighbour_in_a_false_life(peer: RawPeer) -> str:
    await peer.say(hello("b2", "broker", peer_incarnation=peer.random.choice((0, 1))))
    return await told(peer)


@attack("refused")
async def another_broker_was_meant(peer: RawPeer) -> str:
    await peer.say(hello(peer="b7"))
    return await told(peer)


@attack("protocol")
async def oversized_message(peer: RawPeer) -> str:
    """The frame is within its limit, the event of one attribute, written ten thousand times, is not."""
    await peer.join(f"bloated-{peer.random.random()}")
    pairs = b"\xa1n\x01" * (MESSAGE_BYTES_MAX // 3 + 1)
    event = b"\xdf" + (len(pairs) // 3).to_bytes(4, "big") + pairs
    await peer.send(frame_of(b"\x91\x94\x0a\x01" + event + b"\xc4\x00", 1))
    return await told(peer)


@attack("protocol")
async def oversized_plan(peer: RawPeer) -> str:
    """A message without an event: on its way to the next broker it would outgrow the frame."""
    client = f"planner-{peer.random.random()}"
    life = await peer.join(client)
    step = Planned(2, "pub", "D", event={"n": 1}, payload=bytes(1000))
    plan = Planned(1, "tcm", client, target="D", nested=(step,) * (MESSAGE_BYTES_MAX // 1000))
    await peer.say(Step(f"{client}/{life}/1", client, False, plan, ()), first=1)
    return await told(peer)


@attack("protocol", ALIVE)
async def fuzz_after_joining(peer: RawPeer) -> str:
    """Rightly numbered frames with hostile bodies, until the broker has had enough."""
    await peer.join(f"fuzz-{peer.random.random()}")
    hostile, sent = Hostile(peer.random.randrange(2**32)), 0
    for _ in range(30):
        body = hostile.body()
        await peer.send(frame_of(body, sent + 1))
        try:
            sent += len(wire.decode(body))
        except wire.WireError:
            return await told(peer)
    return ALIVE
