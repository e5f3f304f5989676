"""Who is let in, and with which sentence the others are turned away."""

from __future__ import annotations

import pytest

from broker.config import NodeConfig, parse
from broker.protocol.messages import Goodbye, Hello
from broker.protocol.wire import PROTOCOL_VERSION, WireError
from broker.sessions import greeting

CONFIG: NodeConfig = parse(
    """
    id = "b1"
    listen = "127.0.0.1:7001"
    [[neighbours]]
    id = "b2"
    [[neighbours]]
    id = "b3"
    address = "127.0.0.1:7003"
    """,
    "b1.toml",
)


def hello(role: str = "broker", name: str = "b2", peer: str = "b1", **changes: object) -> Hello:
    fields = {
        "version": PROTOCOL_VERSION,
        "role": role,
        "name": name,
        "peer": peer,
        "incarnation": 5,
        "peer_incarnation": 0,
        "received": 0,
        "overlap": "all",
    }
    return Hello(**(fields | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "greeted",
    [hello(), hello("client", "E", ""), hello("client", "b1"), hello("monitor", "", "")],
)
def test_whoever_fits_the_configuration_is_let_in(greeted: Hello) -> None:
    assert greeting.refusal(greeted, CONFIG) is None


@pytest.mark.parametrize(
    ("greeted", "code", "words"),
    [
        (hello("client", "E", "b7"), "refused", ("b1", "b7")),
        (hello(name="b1"), "duplicate-id", ("b1",)),
        (hello(name="b7"), "unknown-neighbour", ("b1", "b7", "add it")),
        (hello(peer="b9"), "unknown-neighbour", ("b1", "b2", "b9")),
        (hello(name="b3"), "both-dial", ("b1", "b3", "remove the address")),
        (hello(overlap="any"), "overlap-mode", ("b1", "b2", "'all'", "'any'")),
    ],
)
def test_a_refusal_names_the_brokers_and_what_to_do(
    greeted: Hello, code: str, words: tuple[str, ...]
) -> None:
    refusal = greeting.refusal(greeted, CONFIG)
    assert refusal is not None
    assert refusal.code == code
    assert all(word in refusal.reason for word in words)


def test_another_version_of_the_protocol_is_an_error() -> None:
    with pytest.raises(WireError, match=f"version 99; this broker speaks {PROTOCOL_VERSION}"):
        greeting.check(hello(version=99))


@pytest.mark.parametrize(
    ("greeted", "known_incarnation", "loser"),
    [
        (hello(), 0, ""),
        (hello(peer_incarnation=1), 5, ""),
        (hello(), 4, "b2"),
        (hello(peer_incarnation=2), 0, "b1"),
    ],
    ids=["never met", "as before", "they restarted", "we restarted"],
)
def test_a_neighbour_that_has_restarted_is_told_from_one_that_is_back(
    greeted: Hello, known_incarnation: int, loser: str
) -> None:
    assert greeting.lost_state(greeted, "b1", 1, known_incarnation) == loser


def test_a_client_that_comes_back_too_late_is_told_how_its_session_ended() -> None:
    departed = greeting.Departed()
    departed.add("E", 5, greeting.away_too_long("E", "b1", 300))
    assert "away for more than 300 ms" in departed.goodbye("E", 5, "b1").reason
    unknown = departed.goodbye("E", 6, "b1")
    assert (unknown.code, "b1 does not know this session of E" in unknown.reason) == ("state-lost", True)
    assert departed.as_list()[0]["client"] == "E"


def test_only_the_latest_departures_are_remembered() -> None:
    departed = greeting.Departed()
    for number in range(10 * greeting.DEPARTED_MAX):
        departed.add(f"c{number}", number, Goodbye("slow-consumer", f"reason {number}"))
    assert len(departed.as_list()) == greeting.DEPARTED_MAX
    assert departed.as_list()[-1]["reason"] == f"reason {number}"
    assert departed.goodbye("c0", 0, "b1").code == "state-lost"
