"""A broker's TOML: what labctl writes is what the broker reads."""

from __future__ import annotations

import tomllib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config import ConfigError, parse
from broker.protocol.delay import Delay
from labctl.overlay.node_files import Common, NeighbourEntry, Node, emit, plan
from labctl.topology import Topology, standard

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def addresses_of(tree: Topology) -> dict[str, str]:
    return {broker: f"127.0.0.1:{port}" for port, broker in enumerate(tree.brokers, start=7001)}


@given(TEXT, TEXT, st.floats(0, 60_000), st.integers(0, 2**62))
def test_any_text_and_number_comes_back_as_it_was(id_: str, other: str, delay_ms: float, seed: int) -> None:
    delay = Delay(delay_ms, 0.5, 0.25, (60.0, 120.0), seed)
    table = tomllib.loads(emit(Node(id_, "h:1", (NeighbourEntry(other, None, delay),))))
    assert table["id"] == id_
    assert table["neighbours"][0] == {
        "id": other,
        "delay_ms": delay_ms,
        "sigma": 0.5,
        "stall_probability": 0.25,
        "stall_ms": [60.0, 120.0],
        "seed": seed,
    }


@pytest.mark.parametrize("character", [*map(chr, range(32)), "\x7f", '"', "\\", "\u2028", "é", "𝄞"])
def test_every_awkward_character_is_escaped(character: str) -> None:
    assert tomllib.loads(emit(Node(f"a{character}b", "h:1")))["id"] == f"a{character}b"


def test_a_section_that_would_say_nothing_is_left_out() -> None:
    assert emit(Node("b1", "h:1", (NeighbourEntry("b2", None),))) == (
        'id = "b1"\nlisten = "h:1"\noverlap = "all"\n\n[[neighbours]]\nid = "b2"\n'
    )


@pytest.mark.parametrize("count", [1, 2, 3, 5, 9, 20])
def test_exactly_one_end_of_every_link_dials_the_other(count: int) -> None:
    tree = standard(count)
    addresses = addresses_of(tree)
    dials = [
        (node.id, neighbour.id, neighbour.address)
        for node in plan(tree, addresses)
        for neighbour in node.neighbours
        if neighbour.address is not None
    ]
    assert Counter(frozenset(dial[:2]) for dial in dials) == Counter(frozenset(link) for link in tree.links)
    assert all(address == addresses[other] for _, other, address in dials)


def test_the_broker_reads_what_is_written() -> None:
    tree = standard(3).with_delays(
        links={"delay_ms": 2.2, "sigma": 0.4, "seed": 7}, clients={"delay_ms": 3.3, "stall_probability": 0.01}
    )
    common = Common(
        "any",
        grace_ms=900,
        silence_ms=7000,
        patience_ms=80,
        queue_bytes_max=4096,
        limits={"payload_bytes_max": 512},
    )
    configs = {node.id: parse(emit(node), node.id) for node in plan(tree, addresses_of(tree), common)}
    middle = configs["b2"]
    assert (middle.id, middle.listen, middle.overlap) == ("b2", "127.0.0.1:7002", "any")
    assert (middle.grace_ms, middle.silence_ms, middle.patience_ms) == (900, 7000, 80)
    assert middle.queue_bytes_max == 4096
    assert middle.limits.payload_bytes_max == 512
    assert middle.clients == Delay(3.3, stall_probability=0.01)
    assert [(n.id, n.address) for n in middle.neighbours] == [("b1", ""), ("b3", "127.0.0.1:7003")]
    assert {n.delay for config in configs.values() for n in config.neighbours} == {Delay(2.2, 0.4, seed=7)}


def test_a_number_that_toml_readers_may_refuse_is_not_written() -> None:
    with pytest.raises(ValueError, match="no place in a node file"):
        emit(Node("b1", "h:1", common=Common(limits={"x": float("inf")})))  # type: ignore[dict-item]


def test_each_broker_gets_a_history_of_its_own() -> None:
    common = Common(history_folder="results/run", history_detail="outcomes")
    read = parse(emit(Node("b1", "127.0.0.1:7001", common=common)), "b1.toml")
    assert (read.history, read.history_detail) == ("results/run/b1.jsonl", "outcomes")
    silent = parse(emit(Node("b1", "127.0.0.1:7001")), "b1.toml")
    assert (silent.history, silent.history_detail) == ("", "all")
    with pytest.raises(ConfigError, match="history_detail"):
        parse(emit(Node("b1", "127.0.0.1:7001", common=Common(history_detail="some"))), "b1.toml")


def test_a_durable_broker_is_told_its_folder_and_whose_it_is() -> None:
    tree = standard(1)
    common = Common(durable="os", data_folder="there", overlay="east")
    (node,) = plan(tree, addresses_of(tree), common)
    config = parse(emit(node), "b1.toml")
    assert (config.durable, config.data, config.overlay) == ("os", "there/b1.data", "east")


def test_a_data_folder_on_the_command_line_means_to_be_durable_unless_the_file_says_otherwise() -> None:
    text = 'id = "b1"\nlisten = "h:1"\n'
    configs = [parse(text + more, "b1.toml", "there") for more in ("", 'durable = "os"', 'durable = "none"')]
    assert [(config.data, config.durable) for config in configs] == [
        ("there", "fsync"),
        ("there", "os"),
        ("there", "none"),
    ]


def test_faults_and_logs_have_files_of_each_broker_where_they_are_wanted() -> None:
    common = Common(control_folder="/r/control", data_folder="/r/data", durable="fsync")
    [node] = plan(standard(1), {"b1": "h:1"}, common)
    table = tomllib.loads(emit(node))
    assert (table["control"], table["data"], table["durable"]) == (
        "/r/control/b1.json",
        "/r/data/b1.data",
        "fsync",
    )
    assert parse('id = "b1"\nlisten = "h:1"\ncontrol = "/r/b1.json"\n', "b1.toml").control == "/r/b1.json"
