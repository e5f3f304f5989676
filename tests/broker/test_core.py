"""The overlay's rules on cores without sockets: routing, spaces with holes, joining, leaving, settling."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from broker.core import Broker
from broker.protocol.filters import Filter, at_least, between, make_filter
from broker.protocol.hops import broker_hop, client_hop
from broker.protocol.messages import (
    Accepted,
    Announce,
    Join,
    Joined,
    Leave,
    Operation,
    Publish,
    Refused,
    Settled,
)
from broker.protocol.vocabulary import NO_KEY, Kind
from broker.routing.joining import ClientArrived
from broker.routing.ready import ProtocolError
from tests.support.rawclients import RawWorld

LINE = [("b1", "b2"), ("b2", "b3")]


def overlay(*clients: tuple[str, str], seed: int = 0) -> RawWorld:
    world = RawWorld(LINE, seed=seed)
    for client, home in clients:
        world.enter(client, home)
    world.run()
    return world


def do(world: RawWorld, client: str, kind: Kind, **constraints: object) -> None:
    world.operate(client, kind, make_filter(constraints))
    world.run()


def test_a_client_is_let_in_when_every_broker_knows_it() -> None:
    world = overlay(("E", "b1"))
    assert world.got("E", Joined) == [Joined(3)]
    homes = {
        name: [(client, claim.hop) for client, claim in b.state.crt] for name, b in world.brokers.items()
    }
    assert homes == {
        "b1": [("E", "client:E")],
        "b2": [("E", "broker:b1")],
        "b3": [("E", "broker:b2")],
    }


def test_a_subscription_follows_the_advertisement_and_the_publication_follows_it_back() -> None:
    world = overlay(("E", "b1"), ("A", "b3"))
    do(world, "E", "adv", process="p1")
    do(world, "A", "sub", process="p1")
    assert [len(b.routing.prt) for b in world.brokers.values()] == [1, 1, 1]
    world.publish("E", {"process": "p1"}, 7)
    world.run()
    assert world.deliveries("A") == [7]


def test_a_subscription_without_advertisement_stays_at_its_edge_until_one_attracts_it() -> None:
    world = overlay(("E", "b1"), ("A", "b3"))
    do(world, "A", "sub", process="p1")
    assert [len(b.routing.prt) for b in world.brokers.values()] == [0, 0, 1]
    do(world, "E", "adv", process="p1")
    assert [len(b.routing.prt) for b in world.brokers.values()] == [1, 1, 1]


def test_an_unsubscription_carves_a_hole_in_a_wider_subscription() -> None:
    world = overlay(("E", "b1"), ("D", "b3"))
    do(world, "E", "adv", process="p1")
    do(world, "D", "sub", process="p1")
    do(world, "D", "usub", process="p1", instance="x1")
    for number, instance in enumerate(("x1", "x2")):
        world.publish("E", {"process": "p1", "instance": instance}, number)
    world.run()
    assert world.deliveries("D") == [1]


def test_an_unadvertisement_carves_a_hole_in_what_may_be_published() -> None:
    world = overlay(("E", "b1"))
    do(world, "E", "adv", process="p1")
    do(world, "E", "uadv", process="p1", step=between(1, 3))
    world.publish("E", {"process": "p1", "step": 2}, 1)
    world.publish("E", {"process": "p1", "step": 4}, 2)
    world.run()
    refused = world.got("E", Refused)
    assert [message.number for message in refused if isinstance(message, Refused)] == [1]


def test_a_hole_that_was_attracted_late_does_not_outrank_a_newer_subscription() -> None:
    """H12 of the D-TX page: the order of arrival at a remote broker is not the order of issue."""
    world = overlay(("E", "b3"), ("S", "b1"))
    do(world, "E", "adv", n=1)
    do(world, "S", "sub", n=between(0, 1))
    do(world, "S", "usub", n=0)  # overlaps no advertisement: stays at b1
    do(world, "S", "sub", n=between(0, 2))  # goes to b3
    do(world, "E", "adv", n=0)  # attracts the hole, if it is still there, behind the newer subscription
    world.publish("E", {"n": 0}, 5)
    world.run()
    assert world.deliveries("S") == [5]


def test_a_publisher_does_not_get_its_own_publication() -> None:
    world = overlay(("E", "b1"), ("A", "b1"))
    do(world, "E", "adv", process="p1")
    do(world, "E", "sub", process="p1")
    do(world, "A", "sub", process="p1")
    world.publish("E", {"process": "p1"}, 1)
    world.run()
    assert (world.deliveries("E"), world.deliveries("A")) == ([], [1])


def test_when_a_client_is_gone_its_records_go_everywhere() -> None:
    world = overlay(("E", "b1"), ("A", "b3"))
    do(world, "E", "adv", process="p1")
    do(world, "A", "sub", process="p1")
    world.leave("A")
    world.leave("E")
    world.run()
    assert world.records() == 0
    assert all(len(broker.state.crt) == 0 for broker in world.brokers.values())


def test_a_subscription_that_is_taken_back_leaves_nothing_behind() -> None:
    world = overlay(("E", "b1"), ("A", "b3"))
    do(world, "E", "adv", process="p1")
    for instance in range(50):
        do(world, "A", "sub", process="p1", instance=instance)
        do(world, "A", "usub", process="p1", instance=instance)
    assert sum(len(broker.routing.prt) for broker in world.brokers.values()) == 0


def test_instances_that_come_and_go_leave_nothing_behind_however_many_are_open() -> None:
    world = overlay(("E", "b1"), ("A", "b3"))
    do(world, "E", "adv", process="p1")
    for instance in range(300):
        do(world, "A", "sub", process="p1", instance=instance)
        if instance >= 100:
            do(world, "A", "usub", process="p1", instance=instance - 100)
    assert [len(broker.routing.prt) for broker in world.brokers.values()] == [100, 100, 100]
    world.publish("E", {"process": "p1", "instance": 199}, 1)
    world.publish("E", {"process": "p1", "instance": 200}, 2)
    world.run()
    assert world.deliveries("A") == [2]


def test_an_advertisement_that_is_taken_back_leaves_nothing_behind() -> None:
    world = overlay(("E", "b1"))
    do(world, "E", "adv", process="p1")
    do(world, "E", "uadv", process="p1")
    assert world.records() == 0


@pytest.mark.parametrize("seed", range(40))
def test_of_two_claims_on_one_id_the_smaller_broker_wins(seed: int) -> None:
    world = RawWorld(LINE, seed=seed)
    world.enter("E", "b3")
    world.enter("E", "b1")
    world.run()
    refused = [moment.node for moment in world.moments if moment.name == "client-refused"]
    homes = [{claim.home for _, claim in broker.state.crt} for broker in world.brokers.values()]
    assert refused in (["b1"], ["b3"])
    winner = "b1" if refused == ["b3"] else "b3"
    assert homes == [{winner}] * 3
    # b3 may only win if it had joined before b1 asked; then b1 was told so.
    joined = [moment.node for moment in world.moments if moment.name == "client-joined"]
    assert joined == [winner]


def test_the_records_of_the_accepted_claim_stay_when_the_refused_one_goes() -> None:
    """At b2, which hears of the refusal when the client at b1 has spoken already."""
    broker, b1, b3 = Broker("b2", ("b1", "b3"), 1), broker_hop("b1"), broker_hop("b3")
    record = Operation("adv", "c", (NO_KEY, 1, 7, 1), make_filter({"x": 0}))
    for source, message in (
        (b1, Announce("b1", 1, "")),
        (b3, Announce("b3", 1, "")),
        (b1, Join("c", 7, "b1")),
        (b3, Join("c", 8, "b3")),
        (b1, record),
        (b3, Leave("c", 8, "b3")),
    ):
        broker.handle(0.0, source, message)
    assert [(hop, found.stamp) for hop, found in broker.routing.srt] == [(b1, record.stamp)]
    broker.handle(0.0, b1, Leave("c", 7, "b1"))
    assert len(broker.routing.srt) == 0


def test_an_id_in_use_elsewhere_is_refused_and_its_holder_keeps_its_records() -> None:
    world = overlay(("E", "b3"))
    do(world, "E", "adv", process="p1")
    ready = world.brokers["b1"].handle(0.0, client_hop("E"), ClientArrived(999))
    assert [event.name for event in ready.notices] == ["client-refused"]
    assert "b3" in ready.notices[0].fields["reason"]
    assert [len(broker.routing.srt) for broker in world.brokers.values()] == [1, 1, 1]


def test_settled_comes_back_only_when_every_broker_has_what_was_issued_before() -> None:
    for seed in range(30):
        world = overlay(("E", "b1"), ("A", "b3"), seed=seed)
        do(world, "A", "sub", process="p1")
        world.operate("E", "adv", make_filter({"process": "p1"}))
        world.settle("E", 1)
        while not world.got("E", Settled):
            assert world.step()
        assert [len(broker.routing.srt) for broker in world.brokers.values()] == [1, 1, 1]
        assert len(world.brokers["b1"].routing.prt) == 1  # attracted, before the echo


def test_overlap_of_any_attribute_is_a_setting_of_the_overlay() -> None:
    """Definition 2.1 as printed: one shared attribute is enough to send a subscription on."""
    counts = {}
    for mode in ("all", "any"):
        world = RawWorld(LINE, overlap=mode)
        world.enter("E", "b1")
        world.enter("A", "b3")
        world.run()
        do(world, "E", "adv", process="p1", step=1)
        do(world, "A", "sub", process="p2", step=1)
        counts[mode] = len(world.brokers["b1"].routing.prt)
    assert counts == {"all": 0, "any": 1}


@pytest.mark.parametrize("seed", range(50))
def test_a_cycle_is_found_and_named_by_its_brokers_in_whatever_order_they_are_heard_of(seed: int) -> None:
    ring = ["b1", "b2", "b3", "b4"]
    links = [*pairwise([*ring, "b1"]), ("b4", "b5"), ("b5", "b6"), ("b2", "b7")]
    world = RawWorld(links, seed=seed, announcing=())
    for broker in world.brokers:
        world.announce(broker)
    world.run()
    found = [moment.fields for moment in world.moments if moment.name == "fatal"]
    assert found
    for fields in found:
        named = str(fields["reason"]).partition(": ")[2].partition(";")[0].split(" - ")
        assert named[0] == named[-1]
        assert sorted(named[1:]) == ring
        assert all((a, b) in links or (b, a) in links for a, b in pairwise(named))
        assert fields["exit_code"] == 2


def test_two_brokers_with_one_id_are_found() -> None:
    world = RawWorld(LINE)
    ready = world.brokers["b1"].handle(0.0, broker_hop("b2"), Announce("b3", 12345, "b2"))
    assert "Two brokers call themselves b3" in ready.notices[0].fields["reason"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("client:E", Operation("sub", "E", (NO_KEY, 1, 1, 1), make_filter({}))),
        ("client:E", Join("X", 1, "b9")),
        ("broker:b9", Publish(1, {}, b"")),
        ("broker:b2", Accepted(1)),
        ("broker:b2", Operation("sub", "nobody", (NO_KEY, 1, 1, 1), make_filter({}))),
        ("broker:b2", Join("X", 1, "b1")),
        ("client:stranger", Publish(1, {}, b"")),
        ("client:E", Accepted(1)),
    ],
)
def test_what_a_peer_must_not_send_is_refused_and_changes_nothing(source: str, message: Join) -> None:
    world = overlay(("E", "b1"))
    with pytest.raises(ProtocolError):
        world.brokers["b1"].handle(0.0, source, message)
    assert world.records() == 0
    assert [client for client, _ in world.brokers["b1"].state.crt] == ["E"]


def _random_tree(random: Random, size: int) -> list[tuple[str, str]]:
    return [(f"b{random.randrange(n)}", f"b{n}") for n in range(1, size)]


def _random_filter(random: Random) -> Filter:
    low = random.randrange(5)
    step = random.choice([low, between(low, low + random.randrange(4)), at_least(low)])
    return make_filter(random.choice([{}, {"n": step}, {"n": step, "m": random.randrange(2)}, {"m": 1}]))


def _contains(log: list[tuple[Kind, Filter]], event: dict[str, int], positive: Kind) -> bool:
    return next((kind == positive for kind, filter_ in reversed(log) if filter_.matches(event)), False)


@pytest.mark.parametrize("seed", range(150))
def test_after_any_schedule_every_publication_reaches_exactly_its_subscribers(seed: int) -> None:
    """Random trees, placements, operations and schedules; the oracle knows only what clients issued."""
    random = Random(seed)
    world = RawWorld(_random_tree(random, random.randint(1, 6)), ["b0"], seed)
    clients = [f"c{n}" for n in range(random.randint(2, 5))]
    for client in clients:
        world.enter(client, random.choice(list(world.brokers)))
    world.run()
    logs: dict[str, dict[str, list[tuple[Kind, Filter]]]] = {c: {"pub": [], "sub": []} for c in clients}
    kinds: list[Kind] = ["adv", "uadv", "sub", "usub"]
    for _ in range(random.randint(1, 25)):
        client, kind = random.choice(clients), random.choices(kinds, [3, 1, 3, 2])[0]
        filter_ = _random_filter(random)
        logs[client]["pub" if "adv" in kind else "sub"].append((kind, filter_))
        world.operate(client, kind, filter_)
        for _ in range(random.randrange(4)):
            world.step()
    world.run()
    if random.random() < 0.3:
        gone = clients.pop()
        world.leave(gone)
        world.run()
    _check_every_point(world, clients, logs)


def _check_every_point(
    world: RawWorld, clients: list[str], logs: dict[str, dict[str, list[tuple[Kind, Filter]]]]
) -> None:
    identity = 0
    points = [{"n": n, "m": m} for n in range(9) for m in range(2)] + [{"n": 3}, {"m": 1}, {}]
    expected: dict[str, list[int]] = {client: [] for client in clients}
    for publisher in clients:
        for point in points:
            identity += 1
            if _contains(logs[publisher]["pub"], point, "adv"):
                world.publish(publisher, dict(point), identity)
                for client in clients:
                    if client != publisher and _contains(logs[client]["sub"], point, "sub"):
                        expected[client].append(identity)
    world.run()
    assert {client: sorted(world.deliveries(client)) for client in clients} == expected


def test_every_broker_notes_when_a_regular_record_takes_effect_there() -> None:
    world = overlay(("E", "b1"), ("A", "b3"))
    do(world, "E", "adv", process="p1")
    world.moments.clear()
    do(world, "A", "sub", process="p1")
    placed = [(moment.node, moment.fields["kind"]) for moment in world.moments if moment.name == "placed"]
    assert placed == [("b3", "sub"), ("b2", "sub"), ("b1", "sub")]
