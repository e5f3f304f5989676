"""Topologies: the experiments' trees, what a file may say, and what is refused by name."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.protocol.delay import Delay
from labctl.topology import Topology, TopologyError, load, standard


def written(folder: Path, text: str) -> Path:
    path = folder / "tree.yaml"
    path.write_text(text)
    return path


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(TopologyError) as caught:
        load(written(folder, text))
    return str(caught.value)


def test_three_brokers_stand_in_a_line() -> None:
    assert standard(3).links == (("b1", "b2"), ("b2", "b3"))


def test_five_brokers_are_a_centre_with_four_leaves() -> None:
    tree = standard(5)
    assert tree.neighbours("b1") == ("b2", "b3", "b4", "b5")
    assert all(tree.neighbours(leaf) == ("b1",) for leaf in tree.brokers[1:])


def test_nine_brokers_are_a_centre_four_inner_brokers_and_one_leaf_on_each() -> None:
    tree = standard(9)
    inner = tree.neighbours("b1")
    assert len(inner) == 4
    leaves = [other for broker in inner for other in tree.neighbours(broker) if other != "b1"]
    assert sorted((*inner, *leaves, "b1")) == sorted(tree.brokers)
    assert all(len(tree.neighbours(leaf)) == 1 for leaf in leaves)


def test_one_broker_has_no_links() -> None:
    assert standard(1) == Topology(("b1",), ())


@given(st.integers(1, 300))
def test_every_size_is_a_tree_in_which_nobody_has_more_than_its_share_of_neighbours(count: int) -> None:
    tree = standard(count)
    assert len(tree.brokers) == count
    assert len(tree.links) == count - 1
    assert max(len(tree.neighbours(broker)) for broker in tree.brokers) <= 4


@given(st.integers(2, 100).filter(lambda n: n not in (3, 5, 9)))
def test_other_sizes_are_balanced(count: int) -> None:
    depth = [len(standard(count).path("b1", broker)) for broker in standard(count).brokers]
    levels = [depth.count(level) for level in range(1, max(depth) + 1)]
    assert levels[:-1] == [3**level for level in range(len(levels) - 1)]


def test_no_broker_at_all_is_refused() -> None:
    with pytest.raises(TopologyError, match="at least one"):
        standard(0)


def test_a_path_names_both_ends_and_everyone_between() -> None:
    assert standard(9).path("b6", "b3") == ("b6", "b2", "b1", "b3")
    assert standard(9).path("b6", "b6") == ("b6",)


def test_the_outline_is_plain_ascii() -> None:
    tree = Topology(("a", "b", "c", "d"), (("a", "b"), ("b", "c"), ("a", "d")))
    assert tree.outline(str.upper) == ["A", "|-- B", "|   `-- C", "`-- D"]


def test_a_line_of_a_thousand_brokers_has_an_outline() -> None:
    ids = tuple(f"n{number}" for number in range(1000))
    assert len(Topology(ids, tuple(pairwise(ids))).outline()) == 1000


def test_a_file_with_links_only_names_its_brokers_in_order(tmp_path: Path) -> None:
    tree = load(written(tmp_path, "links: [[hub, east], [hub, west]]"))
    assert tree == Topology(("hub", "east", "west"), (("hub", "east"), ("hub", "west")))


def test_a_file_may_hold_a_single_broker(tmp_path: Path) -> None:
    assert load(written(tmp_path, "brokers: [alone]")) == Topology(("alone",), ())


def test_a_link_takes_the_default_delay_except_what_it_sets_itself(tmp_path: Path) -> None:
    tree = load(
        written(
            tmp_path,
            """
            links: [[b1, b2], [b2, b3]]
            delay:
              brokers: {delay_ms: 2.2, sigma: 0.4, seed: 7}
              clients: {delay_ms: 3.3, stall_probability: 0.01, stall_ms: [50, 90]}
              links:
                - {between: [b3, b2], delay_ms: 20}
            """,
        )
    )
    assert tree.delay("b1", "b2") == Delay(2.2, 0.4, seed=7)
    assert tree.delay("b2", "b3") == tree.delay("b3", "b2") == Delay(20.0, 0.4, seed=7)
    assert tree.client_delay == Delay(3.3, stall_probability=0.01, stall_ms=(50.0, 90.0))


def test_settings_laid_over_a_tree_replace_only_what_they_name() -> None:
    tree = Topology(("a", "b"), (("a", "b"),), (Delay(5.0, 0.3),)).with_delays(
        links={"sigma": 0.1}, clients={"seed": 4}
    )
    assert tree.delay("a", "b") == Delay(5.0, 0.1)
    assert tree.client_delay == Delay(seed=4)


def test_a_cycle_is_named_by_its_brokers_in_order_with_the_line_of_the_closing_link(tmp_path: Path) -> None:
    text = "links:\n  - [b1, b2]\n  - [b2, b3]\n  - [b3, b1]\n"
    assert refusal(tmp_path, text).endswith("tree.yaml, line 4: the overlay has a cycle: b1 - b2 - b3 - b1")


def test_a_cycle_leaves_out_the_brokers_that_hang_off_it() -> None:
    links = (("a", "b"), ("b", "c"), ("c", "d"), ("d", "b"))
    with pytest.raises(TopologyError, match=r"cycle: b - c - d - b$"):
        Topology(("a", "b", "c", "d"), links)


def test_a_duplicate_id_is_named(tmp_path: Path) -> None:
    assert "'b1' is there twice" in refusal(tmp_path, "brokers: [b1, b2, b1]\nlinks: [[b1, b2]]")


def test_a_link_to_an_unknown_broker_names_it_and_the_one_meant(tmp_path: Path) -> None:
    text = "brokers: [north, south]\nlinks:\n  - [north, suoth]\n"
    message = refusal(tmp_path, text)
    assert "line 3" in message
    assert "unknown broker 'suoth'; did you mean 'south'?" in message


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    assert "b1 is linked to itself" in refusal(tmp_path, "links: [[b1, b1]]")


def test_a_link_that_is_there_twice_is_not_called_a_cycle(tmp_path: Path) -> None:
    message = refusal(tmp_path, "links: [[b1, b2], [b2, b1]]")
    assert "the link b2 - b1 is there twice" in message


def test_disconnected_parts_are_named(tmp_path: Path) -> None:
    message = refusal(tmp_path, "links: [[b1, b2], [b3, b4]]")
    assert "no link joins b1, b2 to b3, b4" in message


@pytest.mark.parametrize("broker", ["../up", "", ".hidden", "a b", "x" * 65])
def test_an_id_that_could_not_be_a_file_name_is_refused(broker: str) -> None:
    with pytest.raises(TopologyError, match="cannot be a broker's id"):
        Topology((broker,), ())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lniks: [[b1, b2]]", "line 1: unknown key 'lniks'; did you mean 'links'?"),
        (
            "links: [[b1, b2]]\ndelay:\n  broker: {}\n",
            "line 3: unknown key 'broker'; did you mean 'brokers'?",
        ),
        (
            "links: [[b1, b2]]\ndelay:\n  brokers:\n    dealy_ms: 3\n",
            "line 4: unknown key 'dealy_ms'; did you mean 'delay_ms'?",
        ),
        ("zzz: 1", "unknown key 'zzz'; valid are brokers, links, delay"),
        ("links: [[b1, b2]]\nlinks: [[b1, b2]]", "line 2: the key 'links' is there twice"),
        ("links: [[b1, b2, b3]]", "a link names two brokers, not 3"),
        ("links: b1", "expected a list, found 'b1'"),
        ("links: [[1, 2]]", "expected text, found 1; write it in quotes"),
        ("links: [[b1, b2]", "line 1: not YAML"),
        ("", "is empty"),
        ("[]", "expected keys and values, found a list"),
        ("links: [[b1, b2]]\ndelay: {brokers: {delay_ms: fast}}", "expected a number, found 'fast'"),
        ("links: [[b1, b2]]\ndelay: {brokers: {delay_ms: .nan}}", "expected a number, found nan"),
        ("links: [[b1, b2]]\ndelay: {brokers: {delay_ms: true}}", "expected a number, found True"),
        ("links: [[b1, b2]]\ndelay: {brokers: {seed: 1.5}}", "expected a whole number, found 1.5"),
        ("links: [[b1, b2]]\ndelay: {brokers: {delay_ms: -1}}", "line 2: delay_ms is -1"),
        ("links: [[b1, b2]]\ndelay: {brokers: {stall_ms: [9, 3]}}", "the shorter stall comes first"),
        ("links: [[b1, b2]]\ndelay: {brokers: {stall_ms: [9]}}", "shortest and the longest stall, found 1"),
        ("links: [[b1, b2]]\ndelay: {links: [{between: [b1, b9]}]}", "there is no link b1 - b9"),
        ("links: [[b1, b2]]\ndelay: {links: [{delay_ms: 1}]}", "Name the link"),
    ],
)
def test_a_mistake_in_a_file_is_told_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    told = refusal(tmp_path, text)
    assert "tree.yaml" in told
    assert message in told


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match=r"nowhere\.yaml cannot be read: No such file"):
        load(tmp_path / "nowhere.yaml")


def test_a_file_that_refers_to_itself_is_refused_and_does_not_hang(tmp_path: Path) -> None:
    assert "expected" in refusal(tmp_path, "links: &loop [*loop]")
