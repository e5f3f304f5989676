"""What people are shown of a schedule: the program, the diagram; virtual time; and what is left after long."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from broker.protocol.vocabulary import PROTOCOLS
from broker.transactions.dtx.decisions import DtxDecisions
from labctl.cli import app
from labctl.simulate.programs.programs import Fault, Op, Program, TxProgram
from labctl.simulate.programs.variants import Variant, generate
from labctl.simulate.runner import SimRun, simulate
from labctl.simulate.search.measure import MedianDelays, measure, placements
from labctl.simulate.search.soak import Soak, growth, sizes
from labctl.simulate.views.describe import outline
from labctl.simulate.views.diagram import diagram, draw, order
from labctl.simulate.world import World
from labctl.topology import standard

ASKED = Op("tcm", to="c2", nested=(("c2", (Op("sub", "d", (0,)),)),))
PROGRAM = Program(
    (("b1", "b2"),),
    ("b1", "b2"),
    {"c1": "b1", "c2": "b2"},
    (("c1", Op("adv", "d", (0, 1))),),
    (TxProgram("c1", "d-tx", (ASKED, Op("pub", "d", (0,))), 0.002),),
    slowness={"broker:b1>broker:b2": 2.0, "client:c1>client:c2": 9.0},
)


def shown(program: Program) -> list[str]:
    return diagram(simulate(program, traces=True).world, program)


def ask(*arguments: str) -> tuple[int, Any]:
    done = CliRunner().invoke(app, ["simulate", *arguments, "--json"])
    return done.exit_code, json.loads(done.stdout)


def test_a_program_is_told_line_by_line() -> None:
    lines = list(outline(PROGRAM))
    assert lines[0] == "brokers    b1, b2; links b1 - b2"
    assert lines[1] == "clients    c1 at b1, c2 at b2"
    assert "before     c1 adv d=0,1" in lines
    assert "   2.000  c1, d-tx: tcm to c2 [c2: sub d=0]; pub d=0" in lines
    assert lines[-1] == "delay      b1 -> b2 2.00 ms in the mean", "there is no link between clients"


def test_an_arrow_goes_from_its_source_to_its_target() -> None:
    columns = ["b1", "c1", "b2"]
    assert draw(columns, 3, "b1", "b2") == "o---->|  "
    assert draw(columns, 3, "c1", "b1") == "|<-o  |  "
    assert draw(columns, 3, "", "c1") == "|  *  |  "


def test_clients_stand_beside_their_broker() -> None:
    assert order(PROGRAM) == ["b1", "c1", "b2", "c2"]


def test_a_diagram_has_every_message_and_decision_in_the_order_of_time() -> None:
    result = simulate(PROGRAM, traces=True)
    head, *lines = diagram(result.world, PROGRAM)
    assert head.split()[:5] == ["ms", "b1", "c1", "b2", "c2"]
    assert sum(" -> " in line for line in lines) == result.messages
    times = [float(line.split()[0]) for line in lines]
    assert times == sorted(times)
    assert any("b1 -> b2  Begin c1/" in line for line in lines)
    assert any("b2: committed" in line for line in lines)
    assert any("c2: is handed s=d x=0" in line for line in lines)


def test_a_message_that_was_lost_is_marked() -> None:
    crashing = Program(
        PROGRAM.links, PROGRAM.brokers, PROGRAM.homes, PROGRAM.setup, PROGRAM.transactions,
        faults=(Fault("crash", "c1", 0.0021, 1),),
    )  # fmt: skip
    assert any("(lost)" in line for line in shown(crashing))


def test_a_wide_overlay_is_told_without_columns() -> None:
    program = generate("dispatch", "d-tx", 1, Variant(brokers=60))
    lines = shown(program)
    assert max(len(line) for line in lines) < 160
    assert any(" -> " in line for line in lines)


# Virtual time


def test_messages_and_crossings_are_those_of_the_cost_model() -> None:
    """D-TX: 6N + O + 2P messages, 6R + O crossings; S-TX: 14 + 2(N - 1) and 6 + 2 max(1, eccentricity)."""
    found = {(m.protocol, m.brokers, m.placement): m for m in measure(PROTOCOLS, (1, 3), MedianDelays())}
    assert found["d-tx", 1, "together"].messages == 6 + 16 + 4
    assert found["d-tx", 1, "together"].crossings == 6 + 16
    assert found["d-tx", 3, "together"].messages == 18 + 16 + 4
    assert found["d-tx", 3, "together"].crossings == 18 + 16
    assert found["s-tx", 3, "together"].messages == 14 + 4
    assert found["s-tx", 3, "together"].crossings == 6 + 4


def test_virtual_latency_follows_the_delays() -> None:
    slow = next(iter(measure(["s-tx"], (1,), MedianDelays(client_ms=10.0, sigma=0.0))))
    assert slow.p50_ms == pytest.approx(10.0 * slow.crossings)


def test_an_overlay_of_hundreds_of_brokers_is_measured() -> None:
    code, document = ask("measure", "--brokers", "300", "--protocol", "s-tx")
    assert code == 0
    assert {m["placement"] for m in document["measured"]} == {"together", "far", "random"}
    together = next(m for m in document["measured"] if m["placement"] == "together")
    assert together["messages"] == 14 + 2 * 299


def test_the_far_placement_is_far() -> None:
    tree = standard(40)
    homes = placements(tree)["far"]
    distances = [len(tree.path(homes[a], homes[b])) - 1 for a, b in ("ED", "DA", "EA")]
    assert min(distances) == 6


# A world that lives long


def test_after_many_transactions_nothing_is_left_but_what_they_committed() -> None:
    code, document = ask("soak", "300")
    assert code == 0
    assert document["faults"] == []
    assert document["transactions"] == 300
    assert 50 < document["committed"] < 300


def test_a_tombstone_that_stays_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DtxDecisions, "_bury", lambda decisions, tx, ready: None)
    result = Soak(2, ["d-tx"]).run(3)
    assert any("still has" in fault for fault in result.faults)


def test_whatever_grows_is_noticed() -> None:
    world = SimRun(PROGRAM).world
    before = sizes(world)
    broker = world.brokers["b1"]
    broker.transactions.dtx.forgotten_by_all = ["x"] * 7  # type: ignore[attr-defined]
    grown = growth(before, sizes(world), 2)
    assert grown == [("brokers[].transactions.dtx.forgotten_by_all", 0, 7)]


# The world


def test_only_brokers_with_clients_need_to_announce_themselves() -> None:
    tree = standard(30)
    world = World(tree.links, announcing=["b7"])
    client = world.connect("c", "b7")
    world.complete(client.arrived())
    assert world.messages < 30 * 4
    assert all(hop for _, hop in ((b, b.state.hop_to("c")) for b in world.brokers.values()))


def test_a_world_without_history_keeps_none() -> None:
    run = SimRun(PROGRAM)
    run.prepare()
    run.world.forget_history()
    run.play()
    assert run.world.moments == []
    assert run.world.clients["c2"].deliveries
