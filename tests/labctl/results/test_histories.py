"""History files: what is written can be read back, and `labctl check` decides by it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from broker import status
from broker.node.history import HistoryFile
from broker.protocol.dtx import Prepare
from broker.protocol.events import ARRIVED, FIRST, SENT, Detail, is_kept
from broker.protocol.filters import at_least, between, make_filter, one_of
from client.scenarios.approaches import APPROACHES
from client.scenarios.stage import Options
from labctl.checks.history import read
from labctl.checks.judge import judge, understand
from labctl.checks.verdict import Verdict
from labctl.cli import app
from labctl.results.histories import Line, load
from labctl.results.problem import ResultProblem
from labctl.simulate.stage import play
from labctl.simulate.world import SimMoment, World

HOMES = {"E": "b1", "D": "b2", "A1": "b3", "A2": "b1"}
Edit = Callable[[list[dict[str, Any]]], None]


def played(approach: str = "d-tx", transactions: int = 4) -> World:
    world = World([("b1", "b2"), ("b2", "b3")], seed=1)
    play(world, "dispatching", HOMES, Options(approach, transactions))
    return world


def keep(world: World, folder: Path, detail: Detail = "all") -> Path:
    """A simulated run, in the form of a real one."""

    async def write() -> None:
        for node in (*world.brokers, *world.clients):
            role = "broker" if node in world.brokers else "client"
            history = HistoryFile(folder / f"{node}.jsonl", node, role, 1, detail)
            for moment in world.moments:
                if moment.node == node:
                    history.note(moment.name, moment.fields)
            history.close()

    asyncio.run(write())
    (folder / "tables").mkdir()
    for name, broker in world.brokers.items():
        document = status.describe(broker, dump=True)
        (folder / "tables" / f"{name}.json").write_bytes(msgspec.json.encode(document))
    return folder


def edit(file: Path, change: Edit) -> None:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    change(lines)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def verdicts(folder: Path) -> dict[str, Verdict]:
    return {verdict.property: verdict for verdict in judge(load(folder))}


def answers(folder: Path) -> dict[str, str]:
    return {name: verdict.answer for name, verdict in verdicts(folder).items()}


def check(folder: Path, *options: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["check", str(folder), *options])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


# Writing and reading


@pytest.mark.parametrize("approach", APPROACHES)
def test_a_history_means_the_same_after_it_was_written(tmp_path: Path, approach: str) -> None:
    world = played(approach)
    before, after = read(world.moments), understand(load(keep(world, tmp_path)))
    assert after.homes == before.homes
    assert after.gone == set()
    assert after.transactions.keys() == before.transactions.keys()
    for tx, transaction in before.transactions.items():
        other = after.transactions[tx]
        assert (other.key, other.mode, other.outcome, other.committed_at) == (
            transaction.key,
            transaction.mode,
            transaction.outcome,
            transaction.committed_at,
        )
        for op, operation in transaction.operations.items():
            twin = other.operations[op]
            assert (twin.filter, twin.event, twin.stamp, twin.path, twin.receivers) == (
                operation.filter,
                operation.event,
                operation.stamp,
                operation.path,
                operation.receivers,
            )
    assert Counter(map(str, after.deliveries)) == Counter(map(str, before.deliveries))
    for one, other_ in ((before.setup, after.setup), (before.regular, after.regular)):
        assert {c: [(o.op, o.filter, o.stamp) for o in ops] for c, ops in one.items()} == {
            c: [(o.op, o.filter, o.stamp) for o in ops] for c, ops in other_.items()
        }


def test_every_kind_of_filter_survives(tmp_path: Path) -> None:
    filter_ = make_filter(
        {"a": 1, "b": "x", "c": between(1, 2.5), "d": at_least("m"), "e": one_of(3, "y", 2**63), "f": 1.0}
    )

    async def write() -> None:
        history = HistoryFile(tmp_path / "c.jsonl", "c", "client", 1, "all")
        history.note("issued", {"op": 2**64 - 1, "kind": "sub", "filter": filter_})
        history.close()

    asyncio.run(write())
    (operation,) = read(load(tmp_path).lines()).setup["c"]
    assert operation.filter == filter_
    assert operation.op == 2**64 - 1
    assert [type(p) for p in operation.filter.predicates] == [type(p) for p in filter_.predicates]


def test_lines_are_numbered_without_gaps_and_written_by_themselves(tmp_path: Path) -> None:
    file = tmp_path / "b1.jsonl"

    async def write() -> None:
        history = HistoryFile(file, "b1", "broker", 5, "all")
        for number in range(10_000):
            history.note("processed", {"tx": "t", "op": number, "kind": "sub"})
        assert file.stat().st_size > 0, "much is not kept back"
        history.note("late", {"strange": object()})
        history.close()
        history.note("later", {})

    asyncio.run(write())
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["number"] for line in lines] == list(range(1, 10_003))
    assert lines[0]["fields"] == {"role": "broker", "incarnation": 5, "detail": "all"}
    assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)


def test_a_disk_that_is_full_ends_no_broker_and_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    async def write() -> None:
        history = HistoryFile("/dev/full", "b1", "broker", 1, "all")
        history.note("committed", {"tx": "t"})
        history.close()

    asyncio.run(write())
    assert capfd.readouterr().err == "history of b1: 2 lines lost\n"


def test_a_message_is_noted_with_its_place_on_its_link(tmp_path: Path) -> None:
    async def write() -> None:
        history = HistoryFile(tmp_path / "b1.jsonl", "b1", "broker", 1, "all")
        history.message("sent", "broker:b2", 17, Prepare("t"))
        history.close()

    asyncio.run(write())
    (line,) = list(load(tmp_path).lines())[1:]
    assert (line.name, line.fields) == (
        "sent",
        {"tx": "t", "link": "broker:b2", "seq": 17, "message": "Prepare"},
    )


@pytest.mark.parametrize(
    ("name", "fields", "kept"),
    [
        ("committed", {"tx": "t"}, "all transactions outcomes"),
        ("started", {}, "all transactions outcomes"),
        ("processed", {"tx": "t", "kind": "sub"}, "all transactions"),
        ("issued", {"op": 1, "kind": "sub"}, "all transactions"),
        ("delivered", {"tx": "t", "op": 1}, "all transactions"),
        ("delivered", {"op": 1}, "all"),
        ("issued", {"op": 1, "kind": "pub"}, "all"),
        ("issued", {"tx": "t", "op": 1, "kind": "pub"}, "all transactions"),
        ("sent", {"tx": "t"}, "all"),
    ],
)
def test_a_thinned_history_drops_what_its_level_says(name: str, fields: dict[str, Any], kept: str) -> None:
    levels: tuple[Detail, ...] = ("all", "transactions", "outcomes")
    assert [level for level in levels if is_kept(level, name, fields)] == kept.split()


# Judging


@pytest.mark.parametrize("approach", APPROACHES)
def test_a_good_run_is_valid(tmp_path: Path, approach: str) -> None:
    keep(played(approach), tmp_path)
    found = answers(tmp_path)
    assert "invalid" not in found.values()
    assert found["convergence"] == "valid"
    if approach != "bl-wait":
        assert (found["atomicity"], found["liveness"]) == ("valid", "valid")
    code, out, _ = check(tmp_path)
    assert (code, "invalid" in out) == (0, False)


def test_a_thinned_history_decides_less(tmp_path: Path) -> None:
    keep(played(), tmp_path, "outcomes")
    assert answers(tmp_path) == {
        "atomicity": "valid",
        "answers": "unknown",
        "consistency": "unknown",
        "serializability": "unknown",
        "recipients": "unknown",
        "convergence": "unknown",
        "liveness": "valid",
        "links": "unknown",
    }


def test_a_level_that_only_some_have_kept_misleads_nobody(tmp_path: Path) -> None:
    """An agent that did not note its deliveries has not missed them."""
    keep(played(), tmp_path)

    def thin(lines: list[dict[str, Any]]) -> None:
        lines[0]["fields"]["detail"] = "outcomes"
        lines[:] = [line for line in lines if is_kept("outcomes", line["name"], line["fields"])]
        for number, line in enumerate(lines, 1):
            line["number"] = number

    edit(tmp_path / "A1.jsonl", thin)
    assert "invalid" not in answers(tmp_path).values()


def deliver_twice(lines: list[dict[str, Any]]) -> None:
    last = next(line for line in reversed(lines) if line["name"] == "delivered" and line["fields"].get("tx"))
    lines.append({**last, "number": len(lines) + 1})


def deliver_nothing(lines: list[dict[str, Any]]) -> None:
    for line in lines:
        if line["name"] == "delivered":
            line["name"] = "overlooked"


def abort_instead(lines: list[dict[str, Any]]) -> None:
    next(line for line in lines if line["name"] == "committed")["name"] = "aborted"


def never_end(lines: list[dict[str, Any]]) -> None:
    for line in lines:
        if line["name"] == "ended":
            line["name"] = "overlooked"


@pytest.mark.parametrize(
    ("node", "change", "broken", "names"),
    [
        ("A1", deliver_twice, "atomicity", "delivered to A1 2 times"),
        ("A1", deliver_nothing, "serializability", "missed by A1"),
        ("b2", abort_instead, "atomicity", "aborted at ['b2']"),
        ("E", never_end, "liveness", "of E never ended"),
    ],
)
def test_a_broken_promise_is_found_and_named(
    tmp_path: Path, node: str, change: Edit, broken: str, names: str
) -> None:
    keep(played(), tmp_path)
    edit(tmp_path / f"{node}.jsonl", change)
    code, out, _ = check(tmp_path)
    assert code == 1
    assert names in out
    code, out, _ = check(tmp_path, "--json")
    found = {row["property"]: row for row in json.loads(out)["properties"]}
    assert (code, found[broken]["answer"], json.loads(out)["answer"]) == (1, "invalid", "invalid")
    assert any(names in fault for fault in found[broken]["faults"])


def test_tables_that_lead_elsewhere_are_found(tmp_path: Path) -> None:
    keep(played(), tmp_path)
    file = tmp_path / "tables" / "b1.json"
    document = json.loads(file.read_text())
    rows = document["tables"]["prt"]
    document["tables"]["prt"] = [row for row in rows if row["client"] != "A1"]
    file.write_text(json.dumps(document))
    assert answers(tmp_path)["convergence"] == "invalid"


def test_what_is_left_of_a_transaction_is_found(tmp_path: Path) -> None:
    keep(played(), tmp_path)
    file = tmp_path / "tables" / "b1.json"
    document = json.loads(file.read_text())
    document["open"]["decided"].append({"tx": "E/1/1", "committed": True, "awaiting": ["broker:b2"]})
    file.write_text(json.dumps(document))
    found = verdicts(tmp_path)["liveness"]
    assert found.answer == "invalid"
    assert found.faults[0].startswith("b1 still has E/1/1")


def cut_off_at(name: str) -> Edit:
    def change(lines: list[dict[str, Any]]) -> None:
        del lines[next(n for n, line in enumerate(lines) if line["name"] == name) :]

    return change


def test_of_a_client_that_was_killed_nothing_is_claimed(tmp_path: Path) -> None:
    keep(played(), tmp_path)
    edit(tmp_path / "A1.jsonl", cut_off_at("received"))
    result = load(tmp_path)
    assert understand(result).gone == {"A1"}
    assert [fault for verdict in verdicts(tmp_path).values() for fault in verdict.faults] == []
    assert result.gaps == []


def test_nor_of_one_that_was_killed_before_it_wrote_a_line(tmp_path: Path) -> None:
    keep(played(), tmp_path)
    (tmp_path / "A1.jsonl").write_bytes(b"")
    assert [fault for verdict in verdicts(tmp_path).values() for fault in verdict.faults] == []


def test_a_client_that_leaves_when_all_is_over_is_judged_like_the_others(tmp_path: Path) -> None:
    world = played()
    for client in world.clients:
        world.record(client, "left", {"reason": "done"})
    keep(world, tmp_path)
    assert understand(load(tmp_path)).gone == set()
    edit(tmp_path / "A1.jsonl", deliver_nothing)
    assert answers(tmp_path)["serializability"] == "invalid"


# Files that are not as they should be


def test_without_a_broker_s_history_nothing_is_valid(tmp_path: Path) -> None:
    keep(played(), tmp_path)
    (tmp_path / "b3.jsonl").unlink()
    code, out, _ = check(tmp_path)
    assert code == 3
    assert "there is no history of broker b3" in out


def test_lines_that_were_lost_leave_nothing_valid(tmp_path: Path) -> None:
    keep(played(), tmp_path)
    edit(tmp_path / "b3.jsonl", lambda lines: lines.__delitem__(10))
    code, out, _ = check(tmp_path, "--json")
    assert code == 3
    assert "line 12 of b3 where 11" in json.loads(out)["gaps"][0]


def test_a_last_line_that_is_torn_is_not_there(tmp_path: Path) -> None:
    keep(played(), tmp_path)
    before = len(list(load(tmp_path).lines()))
    with (tmp_path / "A1.jsonl").open("a") as file:
        file.write('{"node":"A1","num')
    assert len(list(load(tmp_path).lines())) == before


@pytest.mark.parametrize("text", ["hello\n", "{}\n{}\n", '{"node": "x"}\n\n'])
def test_what_is_no_history_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(ResultProblem, match=r"x\.jsonl"):
        load(tmp_path)


def test_what_is_no_result_is_a_mistake_of_the_user(tmp_path: Path) -> None:
    assert check(tmp_path / "nowhere")[0] == 2
    code, _, err = check(tmp_path)
    assert (code, "holds no history" in err) == (2, True)


# Links


def a_link(folder: Path, sent: list[tuple[int, str]], arrived: list[tuple[int, str]]) -> Verdict:
    for node, name, other, messages in (("b1", SENT, "b2", sent), ("b2", ARRIVED, "b1", arrived)):
        first = SimMoment(node, 1, 0.0, FIRST, {"role": "broker", "incarnation": 1, "detail": "all"})
        moments = [first]
        for number, (seq, message) in enumerate(messages, 2):
            fields = {"tx": "t", "link": f"broker:{other}", "seq": seq, "message": message}
            moments.append(SimMoment(node, number, 0.0, name, fields))
        lines = [Line(*moment) for moment in moments]
        (folder / f"{node}.jsonl").write_bytes(b"".join(msgspec.json.encode(x) + b"\n" for x in lines))
    return verdicts(folder)["links"]


def test_links_are_judged_by_their_numbers(tmp_path: Path) -> None:
    good = [(1, "Begin"), (4, "Prepare"), (5, "Commit")]
    assert a_link(tmp_path, good, good).answer == "valid"
    assert a_link(tmp_path, good, good[:2]).answer == "valid", "the last is on its way"
    assert "came after" in a_link(tmp_path, good, [good[0], good[2], good[1]]).faults[0]
    assert "came after" in a_link(tmp_path, good, [good[0], *good]).faults[0]
    assert "left out" in a_link(tmp_path, good, [good[0], good[2]]).faults[0]
    assert "arrived as" in a_link(tmp_path, good, [(1, "Abort")]).faults[0]
