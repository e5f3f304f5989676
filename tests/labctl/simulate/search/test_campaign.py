"""Random schedules in chunks: the same whatever the number of processes, resumed, and told when they fail."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from broker.protocol.vocabulary import PROTOCOLS
from broker.transactions.dtx.order import Order
from labctl.cli import app
from labctl.exits import UsageProblem
from labctl.simulate.programs.generate import GENERATORS
from labctl.simulate.programs.programs import Op, Program
from labctl.simulate.programs.variants import PROTOCOL_CHOICES, Variant, generate
from labctl.simulate.search import campaign
from labctl.simulate.search.campaign import (
    CampaignFile,
    Chunk,
    DoneChunk,
    attempt,
    chunks,
    run,
    run_chunk,
    shrunk,
)
from labctl.simulate.search.requests import SIZES, seed_range, sizes


def simulate(*arguments: str) -> tuple[int, dict[str, Any], str]:
    done = CliRunner().invoke(app, ["simulate", *arguments, "--json"])
    return done.exit_code, json.loads(done.stdout) if done.stdout else {}, done.stderr


@pytest.fixture
def no_conflicts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers vote yes on everything."""
    monkeypatch.setattr(Order, "objection", lambda order, context: "")


@pytest.mark.parametrize("protocol", PROTOCOL_CHOICES)
@pytest.mark.parametrize("scenario", GENERATORS)
def test_every_generator_makes_schedules_without_a_violation(scenario: str, protocol: str) -> None:
    done = run_chunk(Chunk(protocol, scenario, 0, 2))
    assert done.violations == ()
    assert done.messages > 0


def test_chunks_begin_at_the_same_seeds_whatever_range_is_asked_for() -> None:
    found = [(c.first, c.count) for c in chunks(["d-tx"], ["skew"], 200, 600)]
    assert found == [(200, 50), (250, 250), (500, 100)]


def test_one_and_two_processes_find_the_same() -> None:
    work = [Chunk("mixed", "crash", first, 4) for first in (0, 4, 8, 12)]
    results: list[list[tuple[Chunk, int]]] = []
    for jobs in (1, 2):
        found: list[DoneChunk] = []
        run(work, jobs, lambda done, found=found: not found.append(done))  # type: ignore[misc]
        results.append([(done.chunk, done.messages) for done in found])
    assert results[0] == results[1]
    assert [chunk for chunk, _ in results[0]] == work


def test_a_campaign_stops_when_it_is_told_to() -> None:
    found: list[DoneChunk] = []

    def take(done: DoneChunk) -> bool:
        found.append(done)
        return len(found) < 2

    run([Chunk("d-tx", "skew", seed, 1) for seed in range(9)], 1, take)
    assert len(found) == 2


def test_a_resumed_campaign_runs_only_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "CHUNK", 5)
    ran: list[Chunk] = []
    real = campaign.run_chunk

    def counted(chunk: Chunk) -> DoneChunk:
        ran.append(chunk)
        return real(chunk)

    monkeypatch.setattr(campaign, "run_chunk", counted)
    record = tmp_path / "record.jsonl"
    options = ["--protocol", "d-tx", "--scenario", "skew", "--jobs", "1", "--record", str(record)]
    _, first, _ = simulate(*options, "--seeds", "0:10")
    _, second, _ = simulate(*options, "--seeds", "0:15")
    assert [chunk.first for chunk in ran] == [0, 5, 10]
    assert second["schedules"] == 15
    assert second["messages"] > first["messages"]
    simulate(*options, "--seeds", "0:15", "--crash", "0.5")
    assert len(ran) == 6, "other conditions are other chunks"


def test_what_other_sources_have_passed_runs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "record.jsonl"
    done = run_chunk(Chunk("d-tx", "skew", 0, 2))
    with CampaignFile(path).writing() as write:
        write(done)
    assert CampaignFile(path).known.keys() == {done.chunk}
    monkeypatch.setattr(campaign, "fingerprint", lambda: "another")
    other = CampaignFile(path)
    assert not other.known
    assert other.outdated == 1


def test_a_record_that_was_cut_off_is_mended(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    first, second = (run_chunk(Chunk("d-tx", "skew", seed, 1)) for seed in (0, 1))
    with CampaignFile(path).writing() as write:
        write(first)
        write(second)
    path.write_bytes(path.read_bytes()[:-20])
    assert CampaignFile(path).known.keys() == {first.chunk}
    with CampaignFile(path).writing() as write:
        write(second)
    assert CampaignFile(path).known.keys() == {first.chunk, second.chunk}


def test_a_file_that_is_no_record_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    path.write_text("hello\n")
    with pytest.raises(UsageProblem, match="line 1"):
        CampaignFile(path)
    with pytest.raises(UsageProblem, match="cannot read"):
        CampaignFile(tmp_path)


@pytest.mark.usefixtures("no_conflicts")
def test_a_violation_is_told_with_its_seed_and_a_small_program_and_a_diagram() -> None:
    code, document, told = simulate(
        "--protocol", "d-tx", "--scenario", "skew", "--seeds", "0:20", "--jobs", "1", "--shrink-s", "1"
    )
    assert code == 1
    violation = document["violations"][0]
    assert violation.keys() >= {"seed", "property", "text"}
    assert violation["property"] == "serializability"
    again = f"labctl simulate replay {violation['seed']} --protocol d-tx --scenario skew"
    assert f"again: {again}\n" in told
    assert simulate(*again.split()[2:])[0] == 1
    assert "committed" in told
    assert "->" in told


@pytest.mark.usefixtures("no_conflicts")
def test_a_shrunk_program_fails_like_the_first_and_is_smaller() -> None:
    program = next(
        p
        for p in (generate("move", "d-tx", seed, Variant(swarm=False)) for seed in range(200))
        if _is_unserializable(p)
    )
    small = shrunk(program, "serializability", 60.0)
    assert _is_unserializable(small)
    assert _size(small) < _size(program)
    assert len(small.transactions) == 2


def _is_unserializable(program: Program) -> bool:
    return any(name == "serializability" for name, _ in attempt(program)[1])


def _size(program: Program) -> int:
    def ops(body: tuple[Op, ...]) -> int:
        return sum(1 + sum(ops(nested) for _, nested in op.nested) for op in body)

    return len(program.brokers) + len(program.setup) + sum(ops(t.body) for t in program.transactions)


def test_a_run_that_breaks_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Order, "objection")
    done = run_chunk(Chunk("d-tx", "skew", 0, 1))
    assert [violation.property for violation in done.violations] == ["internal error"]


def test_an_interrupted_campaign_shows_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "CHUNK", 2)
    real = campaign.run_chunk

    def interrupted(chunk: Chunk) -> DoneChunk:
        if chunk.first >= 4:
            raise KeyboardInterrupt
        return real(chunk)

    monkeypatch.setattr(campaign, "run_chunk", interrupted)
    code, document, _ = simulate("--protocol", "d-tx", "--scenario", "skew", "--seeds", "0:9", "--jobs", "1")
    assert code == 130
    assert document["interrupted"]
    assert document["schedules"] == 4


def test_programs_get_one_object_with_totals_and_parts() -> None:
    code, document, _ = simulate("--seeds", "0:1", "--jobs", "1")
    assert code == 0
    assert (document["protocol"], document["scenario"]) == ("all", "all")
    assert document["schedules"] == len(document["parts"]) == len(PROTOCOL_CHOICES) * len(GENERATORS)
    assert document["messages"] == sum(part["messages"] for part in document["parts"])
    assert document["violations"] == []
    assert document["messages_per_s"] == pytest.approx(document["messages"] / document["seconds"], rel=0.01)


# Other conditions


def test_without_other_conditions_a_program_is_as_generated() -> None:
    assert generate("skew", "mixed", 7, Variant(swarm=False)) == GENERATORS["skew"](7, PROTOCOLS)


def test_conditions_change_overlay_faults_and_delays() -> None:
    variant = Variant(brokers=12, crash=1.0, away=1.0, abort=1.0, slow_links=50.0, swarm=False)
    program = generate("overlapping", "d-tx", 3, variant)
    plain = generate("overlapping", "d-tx", 3, Variant(swarm=False))
    assert len(program.brokers) == 12
    assert len(program.links) == 11
    assert set(program.homes.values()) <= set(program.brokers)
    assert {fault.kind for fault in program.faults} == {"crash", "away"}
    assert len(program.faults) == 2 * len(program.homes)
    assert all(transaction.aborts_after >= 0 for transaction in program.transactions)
    assert [t.body for t in program.transactions] == [t.body for t in plain.transactions]
    assert max(program.slowness.values()) > max([10.0, *plain.slowness.values()])
    assert program == generate("overlapping", "d-tx", 3, variant)


@pytest.mark.parametrize("variant", [Variant(brokers=20), Variant(crash=0.5, away=0.3), Variant(abort=0.7)])
def test_schedules_under_other_conditions_have_no_violation(variant: Variant) -> None:
    assert run_chunk(Chunk("mixed", "overlapping", 0, 5, variant)).violations == ()


# Options


def test_a_schedule_is_replayed_step_by_step() -> None:
    done = CliRunner().invoke(
        app, ["simulate", "replay", "1", "--protocol", "s-tx", "--scenario", "dispatch"]
    )
    assert done.exit_code == 0
    assert "StepCommit" in done.stdout
    assert done.stdout.rstrip().endswith("no violation")


def test_a_replay_waits_for_enter_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    from labctl.output import Output
    from labctl.simulate.views import console

    asked: list[str] = []
    answers = iter(["\n", "2\n", ""])

    class Keyboard:
        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            asked.append("asked")
            return next(answers)

    said: list[tuple[str, int]] = []
    monkeypatch.setattr(console, "is_terminal", lambda stream: True)
    monkeypatch.setattr(sys, "stdin", Keyboard())
    out = Output()
    monkeypatch.setattr(out, "say", lambda line: said.append((line, len(asked))))
    console.step_through(out, ["a", "b", "c", "d", "e"])
    assert said == [("a", 1), ("b", 2), ("c", 2), ("d", 3), ("e", 3)]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--protocol", "2pc"],
        ["--scenario", "nothing"],
        ["--seeds", "9:3"],
        ["--seeds", "x"],
        ["--brokers", "0"],
        ["--brokers", "1,2"],
        ["replay", "1"],
        ["replay", "1", "--protocol", "d-tx,s-tx", "--scenario", "skew"],
        ["replay", "1", "--seeds", "0:9"],
        ["measure", "explore"],
        ["measure", "--protocol", "mixed"],
        ["measure", "--brokers", "0"],
        ["--seeds", "0:9", "explore"],
    ],
)
def test_a_request_that_makes_no_sense_is_refused(arguments: list[str]) -> None:
    code, document, told = simulate(*arguments)
    assert code == 2
    assert document == {}
    assert told


def test_ranges_and_sizes_are_read() -> None:
    assert seed_range("3:9") == (3, 9)
    assert seed_range("3") == (3, 4)
    assert sizes("1, 3,1000") == (1, 3, 1000)
    assert sizes("") == SIZES


def test_without_a_command_it_is_a_campaign() -> None:
    options = ("--protocol", "d-tx", "--scenario", "skew", "--seeds", "0:5", "--jobs", "1")
    code, short, _ = simulate(*options)
    _, whole, _ = simulate("campaign", *options)
    assert code == 0
    assert short["schedules"] == 5
    assert (short["protocol"], short["messages"]) == (whole["protocol"], whole["messages"])


def test_small_worlds_are_explored_for_the_protocols_that_are_named() -> None:
    code, document, _ = simulate("explore", "--protocol", "s-tx", "--limit", "3")
    assert code == 0
    assert document["limit"] == 3
    assert {e["protocol"] for e in document["explored"]} == {"s-tx"}
