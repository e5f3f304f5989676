"""Hostile input to decoder, core and configuration: refused with the right error, and nothing breaks.

More than 200 000 inputs in `make test`. Each test has its own seeds; a failure names the one to run again.
"""

from __future__ import annotations

import resource
import time
from collections import Counter
from contextlib import suppress
from random import Random

import pytest

from broker import status
from broker.config import ConfigError, NodeConfig, parse
from broker.core import Broker
from broker.protocol import wire
from broker.protocol.address import parse_address
from broker.protocol.filters import Filter, between, make_filter
from broker.protocol.hops import Hop, Sends
from broker.protocol.messages import (
    Accepted,
    Announce,
    Join,
    JoinAnswer,
    Joined,
    Leave,
    Publish,
    Refused,
    Request,
)
from broker.protocol.vocabulary import Message
from broker.protocol.wire import AnyMessage, WireError
from broker.routing.joining import ClientArrived, ClientGone
from broker.routing.ready import ProtocolError, Ready
from tests.support.hostile import Hostile, through_the_wire

DECODER_SEEDS, DECODER_INPUTS_PER_SEED = 10, 15_000
CORE_SEEDS, CORE_INPUTS_PER_SEED = 120, 800
LOOKED_AT = 0.1
"""The part of the core's refusals for which all tables are compared."""
Input = AnyMessage | ClientArrived | ClientGone


def seeds(count: int, quick: int) -> list[object]:
    """The first few are for every change, the rest for `make test`."""
    return [pytest.param(seed, marks=[pytest.mark.slow] if seed >= quick else []) for seed in range(count)]


@pytest.mark.parametrize("seed", seeds(DECODER_SEEDS, quick=2))
def test_the_decoder_gives_messages_or_a_wire_error(seed: int) -> None:
    hostile = Hostile(seed)
    outcomes: Counter[str] = Counter()
    for _ in range(DECODER_INPUTS_PER_SEED):
        body = hostile.body()
        try:
            messages = wire.decode(body)
        except WireError as error:
            outcomes["refused" if str(error) else "silence"] += 1
        else:
            assert all(isinstance(message, Message) for message in messages)
            # A body that was decoded can be passed on in pieces.
            pieces = wire.split(body, len(messages))
            assert wire.decode(wire.body(b"".join(pieces), len(pieces))) == messages or _has_nan(messages)
            outcomes["decoded"] += 1
    assert min(outcomes["refused"], outcomes["decoded"]) > DECODER_INPUTS_PER_SEED // 10, outcomes
    assert not outcomes["silence"]


def _has_nan(messages: list[AnyMessage]) -> bool:
    return "nan" in repr(messages)


def test_a_declared_length_is_not_believed() -> None:
    """Headers of a few bytes that promise gigabytes cost neither memory nor time."""
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    request = b"\x94\x0b\x01\xa3sub\x92"
    for count in (
        b"\xdd\xff\xff\xff\xff",
        b"\xdd\x08\x00\x00\x00",
        b"\xdf\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
    ):
        for prefix in (b"", b"\x91", b"\x91" + request, b"\x91\x94\x0a\x01", b"\x91\x94\x0a\x01\x80"):
            with pytest.raises(WireError):
                wire.decode(prefix + count)
    assert time.process_time() - began < 1.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 100_000


@pytest.mark.parametrize(
    "opening", [b"\x91", b"\x81\xa1n", b"\x92\xa1i", b"\x94\x0b\x01\xa3sub\x92\x91\xa1n\x91"]
)
def test_deep_nesting_is_refused(opening: bytes) -> None:
    for prefix in (b"", b"\x91", b"\x91\x94\x0b\x01\xa3sub\x92\x90\x91\x96\xa1i\xc0\xc0\xc2\xc2"):
        with pytest.raises(WireError):
            wire.decode(prefix + opening * 400_000)


@pytest.mark.parametrize("size", [wire.BODY_BYTES_MAX + 1, 2**31, 2**32 - 1])
def test_a_header_over_the_limit_is_refused_before_its_body_has_come(size: int) -> None:
    with pytest.raises(WireError, match=f"{size} bytes; the limit is {wire.BODY_BYTES_MAX}"):
        wire.read_header(wire.HEADER.pack(size, 1, 0))


class Bystanders:
    """A broker b2 between b1 and b3, which answer joins as they must, with honest clients around it."""

    def __init__(self, seed: int) -> None:
        self.hostile = Hostile(seed)
        self.broker = Broker("b2", ["b1", "b3"], 2)
        self.feed("broker:b1", Announce("b1", 1, ""))
        self.feed("broker:b3", Announce("b3", 3, ""))
        self.feed("broker:b1", Join("F", 1, "b1"))
        self.feed("broker:b3", Join("G", 2, "b3"))
        for client in ("E", "A"):
            self.feed(f"client:{client}", ClientArrived(1))

    def feed(self, source: Hop, message: Input) -> Sends:
        """Handle it, and let the neighbours agree to every join; all that was sent is returned."""
        ready = self.broker.handle(0.0, source, message)
        assert isinstance(ready, Ready)
        sends = ready.sends
        for hop, sent in sends:
            if hop.startswith("broker:") and isinstance(sent, Join):
                answer = JoinAnswer(sent.client, sent.incarnation, sent.home, "")
                sends += self.broker.handle(0.0, hop, answer).sends
        return sends

    def draw(self) -> tuple[Hop, Input]:
        """From anybody, in any order; now and then clients come and go."""
        hostile, random = self.hostile, self.hostile.random
        if random.random() < 0.05:
            change = random.choice((ClientArrived(random.randrange(1, 4)), ClientGone("hostile")))
            return f"client:{hostile.client()}", change
        source = random.choice(
            ("broker:b1", "broker:b3", "broker:b1", "broker:b3", f"client:{hostile.client()}")
        )
        if random.random() < 0.05:
            source = random.choice((f"broker:{hostile.broker()}", hostile.text(), "client:", "broker:", ""))
        while (message := through_the_wire(hostile.message())) is None:
            pass
        return source, message

    def tables(self) -> str:
        guests = {
            name: (g.joined, g.yielded_to, g.operations, g.settles)
            for name, g in self.broker.state.guests.items()
        }
        return repr((status.describe(self.broker, dump=True), guests))


@pytest.mark.parametrize("seed", seeds(CORE_SEEDS, quick=20))
def test_the_core_gives_a_ready_or_a_protocol_error_and_goes_on_working(seed: int) -> None:
    world = Bystanders(seed)
    outcomes: Counter[str] = Counter()
    for _ in range(CORE_INPUTS_PER_SEED):
        source, message = world.draw()
        before = world.tables() if world.hostile.random.random() < LOOKED_AT else None
        try:
            sends = world.feed(source, message)
        except ProtocolError as error:
            outcomes["refused" if str(error) else "silence"] += 1
            assert before is None or world.tables() == before, (source, message)
        else:
            assert all(wire.encode(sent) for _, sent in sends)
            outcomes[type(message).__name__] += 1
    assert outcomes["refused"] > 50, outcomes
    assert outcomes.total() - outcomes["refused"] > 50, outcomes
    assert not outcomes["silence"]
    _assert_it_works(world)
    _assert_nothing_stays_of_those_who_leave(world)


def _assert_it_works(world: Bystanders) -> None:
    for client in ("publisher", "subscriber"):
        answers = world.feed(f"client:{client}", ClientArrived(77))
        assert f"client:{client}" in [hop for hop, message in answers if isinstance(message, Joined)]
    wanted = make_filter({"topic": "weather"})
    for client, kind in (("publisher", "adv"), ("subscriber", "sub")):
        answers = world.feed(f"client:{client}", Request(1, kind, wanted))  # type: ignore[arg-type]
        assert (f"client:{client}", Accepted(1)) in answers
    publication = Publish(9, {"topic": "weather", "celsius": 31}, b"hot")
    assert ("client:subscriber", publication) in world.feed("client:publisher", publication)
    assert "client:subscriber" in world.broker.decide("broker:b1", [publication]).hops[0]


def _assert_nothing_stays_of_those_who_leave(world: Bystanders) -> None:
    for client in list(world.broker.state.guests):
        world.feed(f"client:{client}", ClientGone("the test is over"))
    for client, claim in list(world.broker.state.crt):
        world.feed(claim.hop, Leave(client, claim.incarnation, claim.home))
    counts = status.describe(world.broker, dump=False)["counts"]
    del counts["retiring"]  # whether others have committed, too, only they can tell
    assert counts == {"clients": 0, "srt": 0, "prt": 0}
    assert len(world.broker.routing.prt.index) == 0


@pytest.mark.parametrize("seed", range(20))
def test_admitting_and_routing_publications_never_raise_anything_but_a_protocol_error(seed: int) -> None:
    world = Bystanders(1000 + seed)
    for _ in range(300):
        source, message = world.draw()
        with suppress(ProtocolError):
            world.feed(source, message)
    world.feed("client:publisher", ClientArrived(77))
    world.feed("client:publisher", Request(1, "adv", make_filter({"n": between(0, 2)})))
    outcomes: Counter[bool] = Counter()
    for _ in range(1000):
        publication = through_the_wire(world.hostile.publication())
        assert isinstance(publication, Publish)
        [hops] = world.broker.decide("broker:b1", [publication]).hops
        assert set(hops) <= _everybody(world)
        client = world.hostile.random.choice(("publisher", world.hostile.client()))
        guest = world.broker.state.guests.get(client)
        if guest is not None and guest.joined:
            outcomes[bool(world.broker.decide(f"client:{client}", [publication]).refused)] += 1
            continue
        with pytest.raises(ProtocolError, match="has not joined"):
            world.broker.decide(f"client:{client}", [publication])
    assert min(outcomes[True], outcomes[False]) > 10, outcomes


def _everybody(world: Bystanders) -> set[Hop]:
    return {*world.broker.neighbours, *(claim.hop for _, claim in world.broker.state.crt)}


def test_a_reason_that_quotes_hostile_input_stays_short() -> None:
    world = Bystanders(0)
    name = "\x01" * 900_000
    for message in (
        Request(1, "sub", Filter((name, name), (1, 2))),
        Request(1, "sub", Filter((name,), (float("nan"),))),
        Publish(1, {name: 1}, b""),
        Publish(1, {f"\x01{n}" + "\x01" * 1000: "\x01" * 1024 for n in range(64)}, b""),
    ):
        ((hop, answer),) = world.feed("client:E", message)
        assert hop == "client:E"
        assert isinstance(answer, Refused)
        assert 0 < len(answer.reason) <= wire.REASON_LENGTH_MAX


GOOD_FILE = """
id = "b1"
listen = "127.0.0.1:7001"
overlap = "all"
grace_ms = 5000
queue_bytes_max = 1000000

[limits]
payload_bytes_max = 1000
records_max = 10

[clients]
delay_ms = 2.5
stall_ms = [1.0, 2.0]

[[neighbours]]
id = "b2"
address = "127.0.0.1:7002"
sigma = 0.1
"""
BAD_VALUES = (
    "", "1", "-1", "0", "true", "nan", "-inf", "1e400", '""', '"b1"', '"\\u0000"', '"host:99999"', '":1"', "[]",
    "[[]]", "{}", "{ id = 1 }", "1979-05-27", "00:00:00", "9" * 30, "9" * 5000, '"' + "x" * 2000 + '"', "[" * 900,
    '"a..b:1"', '"[::1]:1"', "0x7fffffffffffffffff", '"""\n"""', "[1, 2, 3]", '["b1", "b1"]',
)  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_a_hostile_file_gives_a_sentence_that_names_it_or_a_usable_configuration(seed: int) -> None:
    random = Random(seed)
    outcomes: Counter[str] = Counter()
    for _ in range(1500):
        lines = GOOD_FILE.splitlines()
        for _ in range(random.randint(1, 3)):
            place = random.randrange(len(lines))
            how = random.randrange(5)
            if how == 0:
                del lines[place]
            elif how == 1:
                lines.insert(random.randrange(len(lines)), lines[place])
            elif how == 2 and lines[place]:
                cut = random.randrange(len(lines[place]))
                lines[place] = (
                    lines[place][:cut] + random.choice("\0\"'[]={}#\n\\x") + lines[place][cut + 1 :]
                )
            else:
                lines[place] = f"{lines[place].partition('=')[0]}= {random.choice(BAD_VALUES)}"
        try:
            config = parse("\n".join(lines), "node.toml")
        except ConfigError as error:
            outcomes["refused" if "node.toml" in str(error) else "nameless"] += 1
        else:
            assert isinstance(config, NodeConfig)
            assert parse_address(config.listen)
            outcomes["usable"] += 1
    assert min(outcomes["refused"], outcomes["usable"]) > 100, outcomes
    assert not outcomes["nameless"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("x = " + "[" * 5000, "not TOML"),
        ("grace_ms = " + "9" * 5000, "not TOML"),
        ("grace_ms = " + "9" * 40, "grace_ms"),
        ("grace_ms = 0", "grace_ms"),
        ("[limits]\nattributes_max = -1", "attributes_max"),
        ("[limits]\npayload_bytes_max = 10000000", "payload_bytes_max"),
        ("[[neighbours]]\nid = 'b2'\naddress = 'a..b:1'", "a..b:1"),
        ("[[neighbours]]\nid = 'b2'\naddress = '127.0.0.1:0'", "b2 has no port"),
        ('[[neighbours]]\nid = "b\\n2"', "printable"),
        ("neighbours = 1", r"\[\[neighbours\]\]"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_by_name(text: str, named: str) -> None:
    with pytest.raises(ConfigError, match=f"node.toml.*{named}"):
        parse(f'id = "b1"\nlisten = "127.0.0.1:0"\n{text}', "node.toml")
