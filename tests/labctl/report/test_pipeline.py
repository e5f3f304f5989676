"""The report with a real Spark: transforms on tiny frames, whole results with a known truth, bad input.

One session serves the whole file; commands that start their own are in test_report_command.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from labctl.checks.repetition import judge
from labctl.commands.report import exit_code
from labctl.paths import PROJECT
from labctl.report import pipeline
from labctl.report.judgement import claims
from labctl.report.judgement.model import Report
from labctl.report.pages import outputs
from labctl.report.tables import ingest, latency, nodes, rates, schemas, session
from labctl.results import accounts, layout
from labctl.results.layout import repetition
from tests.support import damage, synthetic
from tests.support.browser import look
from tests.support.synthetic import Spec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.slow,
    # Spark takes its time on a busy machine, and Python's own warnings about its sockets are not ours.
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]
CLAIMS = PROJECT / "experiments" / "claims.yaml"
TRANSACTIONS = 40
"""With fewer, ten in flight are a start and an end with nothing between them."""
D_TX, S_TX, WAIT = claims.cell("d-tx"), claims.cell("s-tx"), claims.cell("bl-wait")


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session.start("local[2]") as found:
        yield found


def analyse(spark: SparkSession, root: Path) -> Report:
    return pipeline.analyse(spark, str(root), str(root / "report"), CLAIMS, lambda _: None)


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


# Transforms on tiny frames

_TX = "cell string, repetition int, copy long, warm_up boolean, start_s double, outcome_s double, ack_s double, outcome string, correct boolean, fault string"


def transactions(spark: SparkSession, *values: tuple[Any, ...]) -> DataFrame:
    """(repetition, copy, warm_up, start, outcome at, ack at, outcome, fault)"""
    data = [("a", r, c, w, s, o, k, out, not fault, fault) for r, c, w, s, o, k, out, fault in values]
    return latency.counted(spark.createDataFrame(data, _TX))


def test_latency_is_that_of_committed_transactions_after_the_warm_up(spark: SparkSession) -> None:
    frame = transactions(
        spark,
        (1, 0, True, 0.0, 9.0, 9.0, "committed", ""),
        (1, 0, False, 10.0, 10.3, 10.2, "committed", ""),
        (1, 0, False, 11.0, 11.1, 11.4, "committed", "wrong-recipient"),
        (1, 0, False, 12.0, 12.5, None, "aborted", ""),
        (1, 0, False, 13.0, None, None, "unknown", ""),
    )
    (row,) = rows(latency.by_repetition(frame))
    assert (row["transactions"], row["committed"], row["aborted"], row["unknown"]) == (4, 2, 1, 1)
    assert (row["wrong"], row["wrong_recipients"], row["missed"]) == (1, 1, 0)
    assert row["latency_ms"] == pytest.approx(300)
    assert row["outcome_ms"] == pytest.approx(200)
    assert row["completion_ms"] == pytest.approx(350)


def test_percentiles_of_a_cell_are_of_all_its_values_and_not_means_of_percentiles(
    spark: SparkSession,
) -> None:
    small = [(1, 0, False, 0.0, 0.01, 0.01, "committed", "")] * 98
    large = [(2, 0, False, 0.0, 1.0, 1.0, "committed", "")] * 2
    (row,) = rows(latency.by_cell(transactions(spark, *small, *large)))
    assert row["percentiles"][0] == pytest.approx(10)
    assert row["percentiles"][2] == pytest.approx(10), "a mean of the repetitions' p95 would be 505"
    assert row["max_ms"] == pytest.approx(1000)


def test_throughput_adds_up_over_coordinators_each_by_its_own_clock(spark: SparkSession) -> None:
    frame = transactions(
        spark,
        (1, 0, False, 0.0, 0.5, 0.4, "committed", ""),
        (1, 0, False, 0.5, 1.0, 0.9, "committed", ""),
        (1, 1, False, 1000.0, 1000.25, 1000.2, "committed", ""),
    )
    (row,) = rows(latency.throughput(frame))
    assert row["throughput"] == pytest.approx(2 / 1.0 + 1 / 0.25)


def test_a_histogram_knows_a_value_to_one_part_in_a_hundred(spark: SparkSession) -> None:
    frame = transactions(spark, *[(1, 0, False, 0.0, 0.1, 0.1, "committed", "")] * 3)
    (row,) = rows(latency.histogram(frame))
    assert row["transactions"] == 3
    assert row["low_ms"] <= 100.0001 < 1.0201 * row["low_ms"]


def window(number: int, events: int, transaction: bool = False, agent: str = "A1") -> tuple[Any, ...]:
    return ("a", 1, agent, number, events, transaction, 1.0)


_RATES = "cell string, repetition int, agent string, window long, events long, transaction boolean, send_lag_ms double"


def test_the_drop_is_between_windows_with_and_without_a_transaction(spark: SparkSession) -> None:
    data = [window(n, 50, agent=agent) for n in (1, 2, 4) for agent in ("A1", "A2")]
    data += [window(3, 30, True, "A1"), window(3, 30, False, "A2")]
    data += [window(0, 3), window(5, 2)]
    whole = rates.windows(spark.createDataFrame(data, _RATES), 0.1)
    (row,) = rows(rates.drops(whole))
    assert (row["windows_with"], row["windows_without"]) == (1, 3)
    assert row["rate_without"] == pytest.approx(1000)
    assert row["drop"] == pytest.approx(0.4)
    assert row["send_lag_ms_max"] == 1.0


def test_a_curve_is_thinned_to_what_a_figure_shows(spark: SparkSession) -> None:
    data = [window(n, 10 if n % 2 else 30, n == 50) for n in range(101)]
    whole = rates.windows(spark.createDataFrame(data, _RATES), 0.1)
    found = rows(rates.curves(whole, 0.1, points_max=20))
    assert len(found) <= 20
    assert sum(row["transaction"] for row in found) == 1
    assert all(100 <= row["rate"] <= 300 for row in found)


def test_messages_are_counted_per_committed_transaction(spark: SparkSession) -> None:
    counts = [("a", 1, "b1", 60, 6000), ("a", 1, "E", 40, 4000)]
    sent = spark.createDataFrame(
        counts, "cell string, repetition int, node string, messages_out long, bytes_out long"
    )
    done = spark.createDataFrame([("a", 1, 5)], "cell string, repetition int, committed long")
    (row,) = rows(nodes.traffic(sent, done))
    assert (row["messages"], row["bytes"]) == (20, 2000)


# Whole results with a known truth


@pytest.fixture(scope="module")
def matrix(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Report, dict[str, Any], Path]:
    """Every cell that a claim asks for, one of them invalid."""
    root = tmp_path_factory.mktemp("matrix")
    wanted = {cell.id for claim in claims.load(CLAIMS) for cell in claim.cells.values()}
    cells = tuple(
        cell for cell in synthetic.matrix() if cell.id in wanted or cell.scenario == "consolidation"
    )
    wrong = claims.cell("s-tx-safe", scenario="consolidation")
    synthetic.write(
        root,
        Spec(cells, repetitions=3, transactions=TRANSACTIONS, windows=30, spread=0.01, wrong=(wrong.id,)),
    )
    report = analyse(spark, root)
    return report, outputs.write(report, str(root / "report"), spark), root


def test_measured_latencies_are_the_ones_that_were_put_in(matrix: Any) -> None:
    report: Report = matrix[0]
    for cell in synthetic.matrix():
        if cell.id in report.cells and report.cells[cell.id].answer == "valid":
            measured = report.cells[cell.id].estimates["latency_ms"].value
            assert measured == pytest.approx(synthetic.truth_ms(cell), rel=0.1), cell.id


def test_a_repetition_knows_what_its_hosts_lost_to_others(matrix: Any) -> None:
    report: Report = matrix[0]
    repetitions = [r for cell in report.cells.values() for r in cell.repetitions]
    assert {r.stolen_share for r in repetitions} == {synthetic.STOLEN_SHARE}


def test_every_claim_is_judged_and_none_fails_on_the_papers_own_figures(matrix: Any) -> None:
    report: Report = matrix[0]
    found = {judgement.id: judgement.verdict for judgement in report.judgements}
    assert len(found) == 16
    assert "does not hold" not in found.values()
    firm = {"C1", "C2", "C4", "C5", "C6", "C8", "C9", "C13", "C14", "C15", "C16"}
    assert {name for name, verdict in found.items() if verdict == "holds"} >= firm


def test_an_invalid_cell_is_shown_as_invalid_and_averaged_nowhere(matrix: Any) -> None:
    report, document, _ = matrix
    invalid = [cell for cell in report.cells.values() if cell.answer == "invalid"]
    assert [cell.id for cell in invalid] == ["consolidation-s-tx-safe-b3-k1-c1"]
    assert invalid[0].estimates == {}
    assert {v.property for v in invalid[0].verdicts() if v.answer == "invalid"} == {"recipients", "routing"}
    (entry,) = [cell for cell in document["cells"] if cell["id"] == invalid[0].id]
    assert (entry["valid"], entry["latency_ms"]["mean"]) == (False, None)
    assert exit_code(report) == 1


def test_waits_stand_there_with_what_they_prove(matrix: Any) -> None:
    report, document, root = matrix
    found = {each.cell: each for each in report.calibrations}
    assert set(found) == {cell.id for cell in report.cells.values() if cell.approach == "bl-wait"}
    wait = found[WAIT.id]
    assert (wait.wait_ms, wait.failed_at_ms, wait.correct) == (synthetic.WAIT_MS, 50.0, 200)
    assert "late-subscription" in wait.fault
    assert len(document["calibrations"]) == len(found)
    assert "Calibrations of BL-WAIT" in (root / "report" / "report.html").read_text()


def test_regular_events_have_latencies_of_their_own(matrix: Any) -> None:
    cell = matrix[0].cells["disruption-s-tx-b3-k1-c1"]
    assert cell.estimates["event_p50_ms"].value == pytest.approx(60)
    assert cell.estimates["event_p99_ms"].value == pytest.approx(109)


def test_all_outputs_are_there(matrix: Any) -> None:
    _, document, root = matrix
    paths = document["outputs"]
    names = {Path(path).stem for path in paths["figures"]}
    assert names == {"figure-5", "figure-6", "figure-7", "figure-8", "figure-9", "consolidation"}
    for path in (paths["html"], paths["csv"], paths["json"], *paths["figures"]):
        assert Path(path).stat().st_size > 500, path
    assert all(Path(path, "_SUCCESS").exists() for path in paths["tables"].values())
    assert {"transactions", "deliveries", "rates", "cells", "verdicts"} <= paths["tables"].keys()
    assert json.loads((root / "report" / "summary.json").read_text())["claims"][0]["id"] == "C1"


def test_deliveries_are_a_table_of_their_own(spark: SparkSession, matrix: Any) -> None:
    table = spark.read.parquet(matrix[1]["outputs"]["tables"]["deliveries"])
    assert table.where(f"cell = '{S_TX.id}'").count() == 3 * (TRANSACTIONS + 2), "and a warm-up of 2"
    assert table.columns == ["cell", "repetition", "client", "number", "time", "tx", "op", "event"]


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)], ids=["desktop", "phone, dark"])
def test_the_page_shows_every_figure_without_an_error(
    matrix: Any, require: Callable[[str], str], tmp_path: Path, width: int, dark: bool
) -> None:
    seen = look(require("chromium"), Path(matrix[1]["outputs"]["html"]), width, tmp_path, dark)
    assert seen.console == []
    assert seen.page["external"] == [], "it must open offline"
    assert seen.page["page_width"] <= seen.page["width"], "nothing sticks out sideways"
    assert len(seen.page["figures"]) == 6
    for figure in seen.page["figures"]:
        assert figure["width"] > 0.75 * min(width, 1000), figure
        assert figure["height"] > 60, figure
        assert figure["left"] >= 0, figure
        assert figure["drawn"] >= 3, f"hardly anything has the colour of an approach: {figure}"
        assert figure["text_px"] >= 8.5, figure
    assert seen.page["contrast"] >= 4.5
    assert seen.page["text_px"] >= 11
    assert (seen.page["background"] != "rgb(255, 255, 255)") is dark


def test_the_look_at_a_page_notices_an_error(require: Callable[[str], str], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<body><p style='color:#eee'>pale</p><script>undefined_function()</script></body>")
    seen = look(require("chromium"), page, 500, tmp_path)
    assert any("undefined_function" in line for line in seen.console)
    assert seen.page["contrast"] < 2


# Bad input


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return synthetic.write(tmp_path / "small", Spec((S_TX, WAIT), repetitions=2, transactions=8))


def test_damage_is_named_and_the_rest_is_reported(spark: SparkSession, small: Path) -> None:
    cell = small / "cells" / S_TX.id
    lines = (cell / "01" / "transactions.jsonl").read_text().splitlines(keepends=True)
    lines[4] = lines[4][:20] + "\n"
    (cell / "01" / "transactions.jsonl").write_text("".join(lines))
    with (cell / "02" / "history" / "b2.jsonl").open("a") as stream:
        stream.write('{"node": "b2", "num')
    (cell / "02" / "nodes" / "b3.jsonl").unlink()
    (small / "cells" / WAIT.id / "02" / "cell.json").write_text("{")
    report = analyse(spark, small)
    text = "\n".join(report.problems)
    assert (
        f"cells/{S_TX.id}/01/transactions.jsonl: 1 corrupt or truncated line, the first at line 5, left out"
        in text
    )
    assert f"cells/{S_TX.id}/02/history/b2.jsonl: 1 corrupt" in text
    assert f"cells/{S_TX.id}/02/nodes/b3.jsonl: missing" in text
    assert f"cells/{WAIT.id}/02/cell.json: not the JSON document that it should be" in text
    assert report.cells[S_TX.id].repetitions[0].counts["transactions"] == 7
    assert len(report.cells[WAIT.id].repetitions) == 1
    assert exit_code(report) == 3


def test_a_history_with_a_hole_is_neither_valid_nor_invalid(spark: SparkSession, small: Path) -> None:
    path = small / "cells" / S_TX.id / "01" / "history" / "b1.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:3] + lines[4:]))
    (small / "cells" / S_TX.id / "02" / "history" / "b3.jsonl").unlink()
    report = analyse(spark, small)
    assert [r.answer for r in report.cells[S_TX.id].repetitions] == ["unknown", "unknown"]
    assert report.cells[WAIT.id].answer == "valid"
    assert exit_code(report) == 3


def test_a_result_without_any_history_is_unknown(spark: SparkSession, small: Path) -> None:
    for path in (small / "cells").rglob("history/*.jsonl"):
        path.unlink()
    report = analyse(spark, small)
    assert report.cells[S_TX.id].answer == "unknown"
    assert any("history: no node left one" in text for text in report.problems)
    assert all(
        "was not run" in j.reason or "is not valid" in j.reason
        for j in report.judgements
        if j.id in ("C2", "C5")
    )


def test_tables_of_brokers_that_kept_something_make_a_repetition_invalid(
    spark: SparkSession, small: Path
) -> None:
    for broker in ("b1", "b2", "b3"):
        left = [{"tx": "E/1/1"}] if broker == "b2" else []
        dump = {"broker": broker, "open": {"transactions": left, "decided": [], "plans": []}}
        dump["tables"] = {"srt": [], "prt": [], "crt": []}
        path = small / "cells" / S_TX.id / "01" / "tables" / f"{broker}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(dump))
    report = analyse(spark, small)
    first, second = report.cells[S_TX.id].repetitions
    assert (first.answer, second.answer) == ("invalid", "valid")
    assert any("b2 still has E/1/1" in v.example for v in first.verdicts)


def test_whatever_is_damaged_report_and_check_say_the_same(spark: SparkSession, tmp_path: Path) -> None:
    damages = {"nothing": damage.NOTHING, **damage.UNKNOWN, **damage.INVALID}
    root = synthetic.write(tmp_path / "r", Spec((D_TX, WAIT), repetitions=len(damages), transactions=6))
    for cell in (D_TX, WAIT):
        for number, spoil in enumerate(damages.values(), 1):
            spoil(root / repetition(cell.id, number))
    report = analyse(spark, root)
    for cell in (D_TX, WAIT):
        found = {r.number: r for r in report.cells[cell.id].repetitions}
        for number, name in enumerate(damages, 1):
            by_check = judge(accounts.load(root / repetition(cell.id, number)))
            assert found[number].answer == by_check.answer, name
            told = {v.property: (v.answer, v.faults) for v in found[number].verdicts}
            assert told == {v.property: (v.answer, len(v.faults)) for v in by_check.verdicts}, name
            expected = "valid" if name == "nothing" else "unknown" if name in damage.UNKNOWN else "invalid"
            assert (found[number].answer, cell.id) == (expected, cell.id) or name in damage.INVALID, name
    assert any("lines of" in text for text in report.cells[D_TX.id].warnings)


def test_damaged_measurements_are_seen_by_report_and_check(spark: SparkSession, tmp_path: Path) -> None:
    cell = claims.cell("d-tx", scenario="disruption")
    damages = {"nothing": damage.NOTHING, **damage.OF_MEASUREMENTS}
    root = synthetic.write(tmp_path / "r", Spec((cell,), repetitions=len(damages), transactions=6))
    for number, spoil in enumerate(damages.values(), 1):
        spoil(root / repetition(cell.id, number))
    found = {r.number: r.answer for r in analyse(spark, root).cells[cell.id].repetitions}
    for number, name in enumerate(damages, 1):
        by_check = judge(accounts.load(root / repetition(cell.id, number))).answer
        assert found[number] == by_check == ("valid" if name == "nothing" else "unknown"), name


def test_a_log_that_goes_on_in_another_file_is_read_whole(spark: SparkSession, small: Path) -> None:
    folder = small / "cells" / S_TX.id / "01" / "nodes"
    whole = (folder / "b1.jsonl").read_text().splitlines(keepends=True)
    (folder / "b1.jsonl.1").write_text("".join(whole[:3]))
    (folder / "b1.jsonl").write_text("".join(whole[3:]))
    pattern = str(small / layout.EVERY / layout.logs_of("*"))
    read = ingest.read_lines(spark, pattern, schemas.VITALS, schemas.REQUIRED["nodes"])
    found = rows(read.where(f"cell = '{S_TX.id}' and repetition = 1").groupBy("node").count())
    assert {row["node"] for row in found} == {"b1", "b2", "b3", "E", "D", "A1", "A2"}
    assert {row["count"] for row in found} == {len(whole)}


def test_a_line_number_is_found_in_a_file_that_spark_splits(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(f"line {number}\n" for number in range(1, 5001)))
    assert ingest._line_numbers(spark, str(path), "line 4321") == [4321]
