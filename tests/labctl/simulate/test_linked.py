"""Worlds whose links carry frames: the same promises, nothing lost with connections, and one schedule for a seed."""

from __future__ import annotations

from collections import Counter
from math import inf

import pytest
from msgspec import structs

from broker.gate.holding import Held
from broker.protocol.link import Link
from labctl.simulate.linked import LinkedWorld
from labctl.simulate.programs.carried import WINDOWS
from labctl.simulate.programs.programs import Cut, Op, Program, RegularProgram
from labctl.simulate.programs.variants import CARRIED_SHARE, PROTOCOL_CHOICES, Variant, generate
from labctl.simulate.runner import SimResult, SimRun, simulate
from labctl.simulate.search.campaign import shrunk
from labctl.simulate.views.describe import outline

SEEDS = 6
CUT = Variant(cut=1.0)
LINE = (("b1", "b2"), ("b2", "b3"))


def moments(result: SimResult) -> list[tuple[str, float, str]]:
    return [(moment.node, moment.time, moment.name) for moment in result.world.moments]


def burst(count: int, **named: object) -> Program:
    """A publisher at one end of a line, a subscriber at the other."""
    setup = (("P", Op("adv", "d", (0, 1))), ("S", Op("sub", "d", (0, 1))))
    events = tuple(Op("pub", "d", (number % 2,)) for number in range(count))
    program = Program(
        LINE, ("b1", "b2", "b3"), {"P": "b1", "S": "b3"}, setup, (), (RegularProgram("P", 0.0, events),)
    )
    return structs.replace(program, **named)


@pytest.mark.parametrize("protocol", PROTOCOL_CHOICES)
def test_schedules_over_links_that_are_lost_have_no_violation(protocol: str) -> None:
    for scenario in ("bursts", "crash", "mixed", "dispatch"):
        for seed in range(SEEDS):
            result = simulate(generate(scenario, protocol, seed, CUT))
            assert result.faults == [], (scenario, seed)
            assert isinstance(result.world, LinkedWorld)
            assert result.world.account.checked > 20


@pytest.mark.parametrize("protocol", PROTOCOL_CHOICES)
def test_what_is_full_makes_others_wait_and_nothing_is_lost_by_that(protocol: str) -> None:
    for seed in range(3 * SEEDS):
        assert simulate(generate("pressed", protocol, seed)).faults == [], seed


def test_a_seed_is_one_schedule() -> None:
    one, other = (simulate(generate("mixed", "d-tx", 3, CUT)) for _ in range(2))
    assert moments(one) == moments(other)
    assert moments(one) != moments(simulate(generate("mixed", "d-tx", 4, CUT)))


def test_connections_are_lost_windows_close_and_sources_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the worlds above would show nothing."""
    counts: Counter[str] = Counter()
    resume, append, pass_on = Link.resume, Held.append, Link.pass_on

    def resumed(link: Link, processed: int) -> list[bytes]:
        frames = resume(link, processed)
        counts["frames sent again"] += len(frames)
        return frames

    def held(self: Held, messages: list[object], body: bytes) -> None:
        counts["frames held"] += 1
        append(self, messages, body)  # type: ignore[arg-type]

    def passed_on(link: Link, messages: bytes, count: int) -> bytes | None:
        frame = pass_on(link, messages, count)
        counts["windows closed"] += frame is None
        return frame

    monkeypatch.setattr(Link, "resume", resumed)
    monkeypatch.setattr(Held, "append", held)
    monkeypatch.setattr(Link, "pass_on", passed_on)
    for seed in range(30):
        simulate(generate("pressed", "d-tx", seed))
    assert all(counts[name] > 20 for name in ("frames sent again", "frames held", "windows closed")), counts


@pytest.mark.parametrize("window_bytes", WINDOWS)
def test_a_message_counts_once_however_many_frames_carry_it(window_bytes: int) -> None:
    cuts = tuple(Cut("broker:b1>broker:b2", time / 1000, 0.001) for time in range(1, 40))
    counts = set()
    for program in (
        burst(30),
        burst(30, window_bytes=window_bytes),
        burst(30, window_bytes=window_bytes, cuts=cuts),
    ):
        result = simulate(program)
        assert result.faults == []
        assert len(result.world.clients["S"].deliveries) == 30
        counts.add(result.messages)
    assert len(counts) == 1


def test_what_a_link_loses_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Link, "resume", lambda self, processed: [])
    cuts = tuple(Cut("broker:b3>broker:b2", time / 1000) for time in range(1, 10))
    faults = dict(simulate(burst(30, window_bytes=100, cuts=cuts)).faults)
    assert "links" in faults
    assert "recipients" in faults


def test_a_failure_by_a_lost_connection_shrinks_to_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Link, "resume", lambda self, processed: [])
    cuts = tuple(Cut("broker:b3>broker:b2", time / 1000) for time in range(1, 10))
    small = shrunk(burst(10, window_bytes=100, cuts=cuts), "links", 3.0)
    assert len(small.cuts) == 1
    assert any("b3 - b2 loses its connection" in line for line in outline(small))
    assert any("carry frames" in line for line in outline(small))


def test_a_client_is_waited_for_as_long_as_the_patience_of_its_broker_lasts() -> None:
    """Then the others get what is theirs, and it loses nothing."""
    regular = tuple(RegularProgram("P", number / 1000, (Op("pub", "d", (0,)),)) for number in range(40))
    setup = (*burst(0).setup, ("T", Op("sub", "d", (0,))))
    homes = {"P": "b1", "S": "b3", "T": "b3"}
    slowness = {"client:S>broker:b3": 500.0}
    program = burst(0, homes=homes, setup=setup, regular=regular, slowness=slowness, window_bytes=60)
    last: dict[float, float] = {}
    for patience_s in (inf, 0.01):
        run = SimRun(program)
        assert isinstance(run.world, LinkedWorld)
        run.world._patience_s = patience_s
        result = run.execute()
        assert result.faults == []
        assert [len(run.world.clients[name].deliveries) for name in "ST"] == [40, 40]
        times = {(m.node, m.name): m.time for m in run.world.moments}
        last[patience_s] = times["T", "delivered"] - times["T", "started"]
    assert last[0.01] < last[inf] / 2


def test_a_share_of_the_seeds_has_links_that_carry_frames_and_all_that_are_to_be_cut() -> None:
    programs = [generate("skew", "d-tx", seed) for seed in range(600)]
    share = sum(program.window_bytes > 0 for program in programs) / len(programs)
    assert 0.5 * CARRIED_SHARE < share < 1.5 * CARRIED_SHARE
    assert all(not program.cuts for program in programs if not program.window_bytes)
    cut = [generate("skew", "d-tx", seed, Variant(cut=0.5)) for seed in range(50)]
    assert all(program.window_bytes for program in cut)
    assert len({program.window_bytes for program in cut}) == len(WINDOWS)
