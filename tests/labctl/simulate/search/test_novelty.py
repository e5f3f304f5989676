"""How different schedules were, and that a record says what is new once."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
from typer.testing import CliRunner

from labctl.cli import app
from labctl.simulate.programs.generate import GENERATORS
from labctl.simulate.runner import simulate
from labctl.simulate.search.campaign import CampaignFile, Chunk, DoneChunk, run_chunk
from labctl.simulate.search.novelty import Met, Novelty, known_marks, states_of
from tests.support.scripted import Script, adv, ask, line, pub, sub


def test_what_is_new_is_counted_from_the_schedule_that_met_it_first() -> None:
    novelty = Novelty()
    novelty.add(10, {"a": 0, "b": 4}, {})
    assert (len(novelty.states), novelty.last, novelty.quiet) == (2, 5, 5)
    novelty.add(10, {"a": 9}, {})
    assert (novelty.last, novelty.quiet) == (5, 15)
    novelty.add(10, {"a": 9}, {"m": 2})
    assert (novelty.schedules, novelty.last, novelty.quiet) == (30, 23, 7)


def test_a_state_is_what_happens_to_a_transaction_beside_how_far_the_others_are() -> None:
    script = Script(line("b1", "b2"), {"C": "b1", "P": "b2"}, [("C", adv(0))])
    script.transaction("C", "s-tx", ask("P", sub(0)), pub(0))
    script.transaction("P", "d-tx", sub(1), at=300)
    script.crash("C", at=600)
    states = set(states_of(script.run().world.moments))
    assert ("s-tx", "tcm", frozenset(), False) in states
    assert ("d-tx", "votes yes", frozenset({"committed"}), False) in states
    assert not any(is_one_gone for *_, is_one_gone in states)


def test_the_core_marks_what_seldom_happens() -> None:
    """H21 in its narrowest form: whom a tcm asks has come back, and has not joined."""
    script = Script(line("b1", "b2", "b3"), {"C": "b1", "P": "b3"}, [("C", adv(0))])
    script.transaction("C", "s-tx", ask("P", sub(0)), pub(0))
    script.crash("P", at=1.5)
    script.come_back("P", at=1.6)
    met = Met()
    met.look(0, script.run().world)
    assert "whom a tcm asks is gone, and has come back" in met.marks
    assert met.marks.keys() <= known_marks()


def test_marks_are_words_that_can_be_listed() -> None:
    assert len(known_marks()) > 20
    found: set[str] = set()
    for seed in range(30):
        world = simulate(GENERATORS["crash"](seed, ["d-tx", "s-tx"])).world
        found |= {mark for broker in world.brokers.values() for mark in broker.state.marks}
    assert found
    assert found <= known_marks()


def test_a_record_holds_what_is_new_once_and_knows_all_of_it_again(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    chunks = [run_chunk(Chunk("d-tx", "crash", seed, 5)) for seed in (0, 5)]
    with CampaignFile(path).writing() as write:
        for done in chunks:
            write(done)
    first, second = (msgspec.json.decode(text, type=DoneChunk) for text in path.read_text().splitlines())
    assert first.states == chunks[0].states
    assert second.states
    assert second.states.keys() == chunks[1].states.keys() - chunks[0].states.keys()
    known = CampaignFile(path).known
    met = {name for done in known.values() for name in done.states}
    assert met == {*chunks[0].states, *chunks[1].states}


def test_a_campaign_says_what_its_schedules_met_within_80_columns() -> None:
    arguments = ["simulate", "--protocol", "mixed", "--scenario", "crash", "--seeds", "0:20", "--jobs", "1"]
    shown = CliRunner().invoke(app, arguments).stdout
    assert "nothing new since" in shown
    assert max(map(len, shown.splitlines())) <= 80
    document = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert document["states"] > 50
    assert 0 <= document["nothing_new_since"] < 20
    assert {*document["marks"]["met"], *document["marks"]["never"]} == known_marks()
