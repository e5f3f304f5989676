"""Worlds whose brokers crash: the same promises, nothing told twice or taken back, and one schedule for a seed."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec import structs

from broker.gate.gate import Gate
from broker.journal.folder import Folder
from labctl.simulate.crashing import CrashingWorld
from labctl.simulate.programs.programs import Journals, Op, Program, RegularProgram, Restart
from labctl.simulate.programs.variants import PROTOCOL_CHOICES, Variant, generate
from labctl.simulate.runner import SimResult, simulate
from labctl.simulate.search.campaign import shrunk
from labctl.simulate.views.describe import outline

SEEDS = 6
RESTART = Variant(restart=1.0)
SCENARIOS = ("mixed", "crash", "hurried", "bursts", "dispatch", "pressed")


def world_of(result: SimResult) -> CrashingWorld:
    assert isinstance(result.world, CrashingWorld)
    return result.world


def steady(count: int, *restarts: Restart, journals: Journals | None = None) -> Program:
    """A publisher at one end of a line, a subscriber at the other, and brokers that end."""
    setup = (("P", Op("adv", "d", (0, 1))), ("S", Op("sub", "d", (0, 1))))
    regular = tuple(
        RegularProgram("P", number / 1000, (Op("pub", "d", (number % 2,)),)) for number in range(count)
    )
    return Program(
        (("b1", "b2"), ("b2", "b3")), ("b1", "b2", "b3"), {"P": "b1", "S": "b3"}, setup, (), regular,
        window_bytes=400, journals=journals or Journals(), restarts=restarts,
    )  # fmt: skip


@pytest.mark.parametrize("protocol", PROTOCOL_CHOICES)
def test_schedules_with_brokers_that_crash_have_no_violation(protocol: str) -> None:
    restarts = 0
    for scenario in SCENARIOS:
        for seed in range(SEEDS):
            result = simulate(generate(scenario, protocol, seed, RESTART))
            assert result.faults == [], (scenario, seed)
            restarts += world_of(result).restarts
    assert restarts > len(SCENARIOS) * SEEDS


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOL_CHOICES)
def test_brokers_that_crash_again_and_again_break_no_promise(protocol: str) -> None:
    for scenario in SCENARIOS:
        for seed in range(100, 110):
            for variant in (Variant(restart=3.0, cut=0.3), Variant(restart=0.3, crash=0.2, away=0.2)):
                assert simulate(generate(scenario, protocol, seed, variant)).faults == [], (scenario, seed)


@pytest.mark.parametrize("kind", ["crash", "kill", "fail"])
def test_whatever_ends_a_broker_all_that_was_published_is_delivered_once(kind: str) -> None:
    ended = 0
    for operations in (1, 2, 3, 5, 8, 13):
        for again in (0, 1, 2):
            restart = Restart("b2", 0.01, kind, 0.005, operations, again, 1000.0)  # type: ignore[arg-type]
            result = simulate(steady(40, restart, journals=Journals(1e-3, 0.5)))
            assert result.faults == []
            assert len(result.world.clients["S"].deliveries) == 40
            ended += world_of(result).restarts
    assert ended > 12, "a snapshot that cannot be written ends nobody"


def test_a_seed_is_one_schedule() -> None:
    results = [simulate(generate("mixed", "d-tx", seed, RESTART)) for seed in (3, 3, 4)]
    one, other, another = ([(m.node, m.time, m.name) for m in result.world.moments] for result in results)
    assert one == other
    assert one != another


def test_in_these_worlds_something_waits_and_is_lost_snapshots_are_taken_and_clients_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise they would show nothing."""
    counts: Counter[str] = Counter()
    fell, adopt, durable = CrashingWorld.fell, Folder.adopt_snapshot, Gate.durable

    def ended(self: CrashingWorld, node: object) -> None:
        folder: Folder = node.folder  # type: ignore[attr-defined]
        counts["entries lost"] += folder.newest - folder.durable
        fell(self, node)  # type: ignore[arg-type]

    def adopted(self: Folder, number: int) -> None:
        counts["snapshots"] += 1
        adopt(self, number)

    def let_out(self: Gate, number: int) -> None:
        counts["several effects at once"] += len(self) > 1
        durable(self, number)

    monkeypatch.setattr(CrashingWorld, "fell", ended)
    monkeypatch.setattr(Folder, "adopt_snapshot", adopted)
    monkeypatch.setattr(Gate, "durable", let_out)
    for seed in range(20):
        world = world_of(simulate(generate("crash", "d-tx", seed, RESTART)))
        counts["links compared"] += world.account.recovered
        counts["clients dismissed"] += sum(
            moment.name == "crashed" and bool(moment.fields) for moment in world.moments
        )
    expected = {"entries lost", "snapshots", "several effects at once", "links compared", "clients dismissed"}
    assert {name for name, count in counts.items() if count} == expected, counts
    assert min(counts[name] for name in expected - {"clients dismissed"}) > 20, counts


def test_who_comes_back_too_late_is_told_so_and_its_transactions_end() -> None:
    journals = Journals(grace_s=0.001)
    program = steady(40, Restart("b3", 0.01, pause_s=0.01), journals=journals)
    gone = 0
    for seed in range(20):
        result = simulate(structs.replace(program, seed=seed))
        assert result.faults == []
        gone += not result.world.clients["S"].is_alive
    assert gone


def test_what_is_told_before_it_is_durable_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gate, "submit", lambda _, carry_out, *arguments: carry_out(*arguments))
    assert "recovery" in dict(simulate(generate("mixed", "d-tx", 0, Variant(restart=3.0))).faults)


def test_a_failure_by_a_crash_shrinks_to_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Folder, "entries", lambda self: iter([e for e in entries(self) if not e]))
    restarts = tuple(Restart("b2", number / 1000, again=1, behind_s=5.0) for number in range(5, 40, 10))
    small = shrunk(steady(10, *restarts), "recovery", 4.0)
    assert len(small.restarts) == 1
    assert (small.restarts[0].again, small.restarts[0].behind_s) == (0, 0)
    lines = list(outline(small))
    assert any("b2 crashes with its machine; it recovers after 0.0 ms" in line for line in lines)
    assert any(line.startswith("journals   are synced at once") for line in lines)


entries = Folder.entries
