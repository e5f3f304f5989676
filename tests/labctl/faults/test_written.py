"""`faults:` in a file: what it may say, and what is refused with file, line and the nearest word."""

from __future__ import annotations

from pathlib import Path

import pytest

from labctl import yamlfile
from labctl.exits import UsageProblem
from labctl.faults import written
from labctl.faults.plan import FaultPlan, FaultyNode, LinkFault, NodeFault
from labctl.faults.stage import FaultStage
from labctl.faults.written import FaultsFile
from labctl.topology import standard

CLIENTS = {"E": "it coordinates", "D": "", "A1": ""}
DURABLE = FaultStage(tree=standard(3), clients=CLIENTS, is_durable=True)
PLAIN = FaultStage(tree=standard(3), clients=CLIENTS, is_durable=False)
ALL = """lasts_s: 30
events:
  - {at_s: 5, kill: broker b2, restart_after_s: 1}
  - {at_s: 9, pause: client A1, for_s: 3}
  - {at_s: 14, cut: [b2, b1], for_s: 2}
  - {at_s: 18, slow: [b2, b3], by_ms: 50, for_s: 3}
  - {at_s: 22, partition: [[b1], [b2, b3]], for_s: 2}
  - {at_s: 26, kill: client A1, restart_after_s: 1}
  - {at_s: 28, fill_disk: broker b2, for_s: 2}
"""


def plan(folder: Path, text: str, setting: FaultStage = DURABLE, seed: int = 1) -> FaultPlan:
    path = folder / "mine.yaml"
    path.write_text(text)
    document = yamlfile.read(path, FaultsFile, UsageProblem)
    written.check(document, document.value, [setting])
    return written.resolve(document.value, setting, seed)


def refusal(folder: Path, text: str, setting: FaultStage = DURABLE) -> str:
    with pytest.raises(UsageProblem) as caught:
        plan(folder, text, setting)
    start, _, said = str(caught.value).partition(", ")
    assert start == str(folder / "mine.yaml")
    return said


def event(text: str, lasts_s: int = 30) -> str:
    return f"lasts_s: {lasts_s}\nevents:\n  - {{at_s: 1, pause: broker b1, for_s: 1}}\n  - {{{text}}}\n"


def test_every_kind_can_be_written(tmp_path: Path) -> None:
    found = plan(tmp_path, ALL)
    assert found.lasts_s == 30
    assert found.faults == (
        NodeFault(kind="kill", node=FaultyNode("broker", "b2"), at_s=5, for_s=1),
        NodeFault(kind="pause", node=FaultyNode("client", "A1"), at_s=9, for_s=3),
        LinkFault(kind="cut", links=(("b1", "b2"),), at_s=14, for_s=2),
        LinkFault(kind="slow", links=(("b2", "b3"),), by_ms=50, at_s=18, for_s=3),
        LinkFault(kind="partition", links=(("b1", "b2"),), at_s=22, for_s=2),
        NodeFault(kind="kill", node=FaultyNode("client", "A1"), at_s=26, for_s=1),
        NodeFault(kind="fill_disk", node=FaultyNode("broker", "b2"), at_s=28, for_s=2),
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("at_s: 5, kil: broker b2, restart_after_s: 1", "unknown key 'kil'; did you mean 'kill'?"),
        ("at_s: 5, pause: broker b9, for_s: 1", "there is no 'broker b9'; did you mean 'broker b"),
        ("at_s: 5, pause: b2, for_s: 1", "there is no 'b2'; did you mean 'broker b2'?"),
        ("at_s: 5, pause: client A3, for_s: 1", "there is no 'client A3'; did you mean 'client A1'?"),
        ("at_s: 5, cut: [b1, b3], for_s: 1", "there is no link b1 - b3; there are b1 - b2, b2 - b3"),
        ("at_s: 5, cut: [b1, c2], for_s: 1", "there is no broker 'c2'; did you mean 'b2'?"),
        ("at_s: 5, cut: [b1], for_s: 1", "a link names two brokers, not 1"),
        ("at_s: 40, pause: broker b2, for_s: 1", "pause broker b2 at 40 s comes after the end: 30 s"),
        ("at_s: 29, pause: broker b2, for_s: 2", "pause broker b2 is over at 31 s, after the end: 30 s"),
        ("at_s: 5, for_s: 1", "what happens? Name one of kill, pause"),
        ("at_s: 5, kill: broker b2, pause: broker b3, for_s: 1", "kill and pause are two faults"),
        ("at_s: 5, kill: broker b2, for_s: 1", "'for_s' does not go with kill; write 'restart_after_s'"),
        ("at_s: 5, kill: broker b2", "'restart_after_s' is missing: kill needs it"),
        ("at_s: 5, pause: broker b2", "'for_s' is missing: pause needs it"),
        ("at_s: 5, slow: [b1, b2], for_s: 1", "'by_ms' is missing: slow needs it"),
        ("at_s: 5, cut: [b1, b2], for_s: 1, by_ms: 3", "'by_ms' does not go with cut"),
        ("pause: broker b2, for_s: 1", "when? Write at_s:"),
        ("at_s: 5, partition: [[b1, b2, b3]], for_s: 1", "a partition has two parts or more, not 1"),
        (
            "at_s: 5, partition: [[b1], [b3]], for_s: 1",
            "a partition names every broker, and b2 is in no part",
        ),
        ("at_s: 5, partition: [[b1, b2], [b2, b3]], for_s: 1", "broker b2 is in two parts"),
        ("at_s: 5, kill: client E, restart_after_s: 1", "client E cannot be killed: it coordinates"),
        ("at_s: 5, fill_disk: client D, for_s: 1", "client D keeps nothing on a disk"),
        ("at_s: 5, kill: broker b2, restart_after_s: 25", "clients look for their broker for 20 s"),
    ],
)
def test_a_bad_event_is_refused_where_it_stands(tmp_path: Path, text: str, complaint: str) -> None:
    said = refusal(tmp_path, event(text))
    assert said.startswith("line 4: ")
    assert complaint in said


@pytest.mark.parametrize("text", ["kill: broker b2, restart_after_s: 1", "fill_disk: broker b2, for_s: 1"])
def test_what_needs_a_log_is_refused_where_brokers_keep_none(tmp_path: Path, text: str) -> None:
    assert "set durable: os or fsync" in refusal(tmp_path, event(f"at_s: 5, {text}"), PLAIN)


def test_two_faults_at_once_are_refused(tmp_path: Path) -> None:
    text = "lasts_s: 9\nevents:\n  - {at_s: 1, cut: [b1, b2], for_s: 3}\n  - {at_s: 2, slow: [b1, b2], by_ms: 9, for_s: 3}\n"
    assert "b1 - b2 has two faults at once" in refusal(tmp_path, text)


def test_a_file_without_a_fault_or_an_end_is_refused(tmp_path: Path) -> None:
    assert "no fault: write 'events' or 'random'" in refusal(tmp_path, "lasts_s: 30\n")
    assert "how long is measured? Write lasts_s:" in refusal(tmp_path, "random: {every_s: 5, kinds: [cut]}\n")


def test_random_faults_follow_their_own_seed_or_that_of_the_run(tmp_path: Path) -> None:
    text = "lasts_s: 60\nrandom: {every_s: 5, kinds: [kill, pause, cut], nodes: all}\n"
    assert plan(tmp_path, text, seed=1) == plan(tmp_path, text, seed=1) != plan(tmp_path, text, seed=2)
    text += "seed: 7\n"
    assert plan(tmp_path, text, seed=1) == plan(tmp_path, text, seed=2)
    killed = {
        f.node.name for f in plan(tmp_path, text).faults if isinstance(f, NodeFault) and f.kind == "kill"
    }
    assert "E" not in killed


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{every_s: 5, kinds: [kil]}", "unknown word 'kil'; did you mean 'kill'?"),
        ("{every_s: 5, kinds: [cut], nodes: broker}", "unknown word 'broker'; did you mean 'brokers'?"),
        ("{every_s: 1, kinds: [cut]}", "a fault of 2 s in every 1 s leaves no time between them"),
        ("{every_s: 5, kinds: [cut], for_s: [2, 1]}", "the shortest time comes first"),
        ("{kinds: [cut]}", "how often? Write every_s:"),
    ],
)
def test_bad_random_faults_are_refused(tmp_path: Path, text: str, complaint: str) -> None:
    assert complaint in refusal(tmp_path, f"lasts_s: 60\nrandom: {text}\n")


def test_random_kills_of_brokers_without_a_log_are_refused(tmp_path: Path) -> None:
    text = "lasts_s: 60\nrandom: {every_s: 5, kinds: [kill]}\n"
    assert "set durable: os or fsync" in refusal(tmp_path, text, PLAIN)
    assert plan(tmp_path, text.replace("[kill]", "[kill], nodes: clients"), PLAIN).faults


def test_a_single_broker_has_no_link(tmp_path: Path) -> None:
    alone = FaultStage(tree=standard(1), clients=CLIENTS, is_durable=True)
    text = "lasts_s: 60\nrandom: {every_s: 5, kinds: [cut]}\n"
    assert "the overlay is one broker" in refusal(tmp_path, text, alone)
