"""Conducting an experiment: what is run, what is kept, what a resume does; the runner itself is replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from labctl.checks import repetition
from labctl.checks.repetition import Judged
from labctl.checks.verdict import Answer, Verdict
from labctl.conduct import calibrations, conductor
from labctl.conduct.calibrations import Setting, Stale
from labctl.conduct.conductor import GaveUp, RunOrder
from labctl.conduct.request import CalibrationRequest, RunRequest
from labctl.conduct.wait_search import Calibration, CalibrationFailed
from labctl.experiment.schedule import PROFILES
from labctl.results import accounts, provenance
from labctl.results.documents import read_json
from labctl.results.resuming import ResumeRefused
from labctl.results.writing import ResultFolder
from labctl.run import runner
from labctl.run.crew import CrewError
from labctl.run.station import HostLost
from tests.support.conducting import QUICK, Nowhere, Runner, Silent, carry_out, order


@pytest.fixture(autouse=True)
def run(monkeypatch: pytest.MonkeyPatch) -> Runner:
    fake = Runner()
    monkeypatch.setattr(runner, "run", fake)
    return fake


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> list[Setting]:
    """The calibrations that were made."""
    settings: list[Setting] = []

    def make(setting: Setting, *_: object) -> Calibration:
        settings.append(setting)
        return Calibration(100.0 + len(settings), 50.0, 200, 50.0, 0.015, 0.95, ())

    monkeypatch.setattr(calibrations, "make", make)
    return settings


def carried_out(root: Path, what: RunOrder) -> ResultFolder:
    folder = conductor.begin(root, what)
    carry_out(root, folder, what)
    return folder


def test_nodes_write_down_as_much_as_was_asked_for(tmp_path: Path, run: Runner) -> None:
    folder = carried_out(tmp_path, order("approach=s-tx", "stalls=false", repeat=1, history="all"))
    assert {job.history_detail for job in run.jobs} == {"all"}
    assert folder.run["resolved"]["history"] == "all"


def test_every_finished_repetition_is_judged_also_after_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = order("approach=s-tx,d-tx", "stalls=false")
    answers: dict[str, Answer] = {"s-tx": "valid", "d-tx": "invalid"}

    def judge(folder: Path) -> Judged:
        answer = answers["d-tx" if "d-tx" in str(folder) else "s-tx"]
        return Judged(answer, (Verdict("commits", answer, 3, ("none",)),), 3, 3 if answer == "valid" else 0)

    monkeypatch.setattr(accounts, "load", lambda folder: folder)
    monkeypatch.setattr(repetition, "judge", judge)
    folder = conductor.begin(tmp_path, what)
    for _ in ("begun", "resumed"):
        report = carry_out(tmp_path, folder, what)
        assert (report.answer, report.committed, report.transactions) == ("invalid", 6, 12)
        bad = {unit.label for unit in what.units() if unit.cell.approach == "d-tx"}
        assert report.reasons == {label: ["commits: none"] for label in bad}


def test_every_repetition_of_every_cell_is_run_once_and_kept(tmp_path: Path, run: Runner) -> None:
    what = order("approach=s-tx,d-tx", "stalls=false")
    folder = carried_out(tmp_path, what)
    assert sorted(run.keys) == sorted(unit.key for unit in what.units())
    assert folder.finished() == set(run.keys)
    assert not (folder.path / ".running").exists()


def test_all_experiments_share_one_folder_and_their_common_cells(tmp_path: Path, run: Runner) -> None:
    what = order(name="all", repeat=1)
    folder = carried_out(tmp_path, what)
    assert folder.path.parent == tmp_path / "all"
    assert len(run.keys) == len(set(run.keys)) == len(what.cells)
    [shared] = [c for c in folder.run["cells"] if c["id"] == "dispatching-d-tx-b3-k1-c1"]
    assert set(shared["experiments"]) == {"base", "clients", "concurrency", "overlay"}


def test_an_interrupt_loses_only_the_running_repetition_and_resume_goes_on(
    tmp_path: Path, run: Runner
) -> None:
    what = order("approach=s-tx,d-tx,d-tx-ni", "stalls=false")
    run.failing = lambda job: KeyboardInterrupt() if len(run.jobs) == 4 else None
    folder = conductor.begin(tmp_path, what)
    with pytest.raises(KeyboardInterrupt):
        carry_out(tmp_path, folder, what)
    assert folder.finished() == set(run.keys[:3])

    interrupted = run.keys[3]
    run.jobs.clear()
    run.failing = lambda job: None
    again = conductor.resume(tmp_path, order("approach=s-tx,d-tx,d-tx-ni", "stalls=false"))
    assert again.path == folder.path
    report = carry_out(tmp_path, again, what)
    assert len(run.jobs) == 3
    assert run.keys[0] == interrupted
    assert (report.done, report.total) == (6, 6)


def test_a_repetition_that_fails_is_kept_apart_and_the_others_are_run(tmp_path: Path, run: Runner) -> None:
    what = order("approach=s-tx,d-tx", "stalls=false")
    run.failing = lambda job: CrewError("E has gone") if len(run.jobs) == 2 else None
    folder = conductor.begin(tmp_path, what)
    view = Silent()
    report = carry_out(tmp_path, folder, what, view)
    assert (report.done, report.total, len(report.failed)) == (3, 4, 1)
    assert view.reasons == ["E has gone"]
    [failure] = folder.path.glob("failed/*/*/failure.json")
    assert read_json(failure)["reason"] == "E has gone"


def test_what_failed_is_run_again_by_a_resume(tmp_path: Path, run: Runner) -> None:
    what = order("approach=s-tx", "stalls=false")
    run.failing = lambda job: CrewError("E has gone") if len(run.jobs) == 1 else None
    carry_out(tmp_path, conductor.begin(tmp_path, what), what)
    folder = conductor.resume(tmp_path, what)
    assert carry_out(tmp_path, folder, what).done == 2


def test_three_failures_in_a_row_end_the_run(tmp_path: Path, run: Runner) -> None:
    what = order("approach=s-tx,d-tx", "stalls=false")
    run.failing = lambda job: CrewError("no brokers")
    with pytest.raises(GaveUp, match="no brokers"):
        carry_out(tmp_path, conductor.begin(tmp_path, what), what)
    assert len(run.jobs) == 3


def test_a_host_that_is_lost_ends_the_run_at_once(tmp_path: Path, run: Runner) -> None:
    what = order("approach=s-tx,d-tx", "stalls=false")
    run.failing = lambda job: HostLost("host broker-1 is lost")
    folder = conductor.begin(tmp_path, what)
    with pytest.raises(GaveUp, match="broker-1 is lost"):
        carry_out(tmp_path, folder, what)
    assert len(run.jobs) == 1
    assert list(folder.path.glob("failed/*/*/failure.json"))


def test_what_has_failed_and_is_to_be_kept_is_followed_by_nothing(tmp_path: Path, run: Runner) -> None:
    what = order("approach=s-tx,d-tx", "stalls=false")
    run.failing = lambda job: CrewError("E has gone")
    folder = conductor.begin(tmp_path, what)
    with pytest.raises(GaveUp, match="E has gone"):
        carry_out(tmp_path, folder, what, keep_on_failure=True)
    assert len(run.jobs) == 1


def test_a_result_says_where_it_was_made_and_its_calibrations_hold_only_there(
    tmp_path: Path, made: list[Setting]
) -> None:
    here = order("approach=bl-wait", "stalls=false", "step_ms=50")
    there = here.at(Nowhere())
    for what in (here, there):
        carried_out(tmp_path, what)
    assert there.run()["testbed"] == {
        "kind": "somewhere",
        "lab": "l",
        "delay": here.run()["testbed"]["delay"],
    }
    assert [setting.where.kind for setting in made] == ["local", "somewhere"]


def test_an_error_that_nobody_expected_is_not_swallowed(tmp_path: Path, run: Runner) -> None:
    what = order("approach=s-tx", "stalls=false")
    run.failing = lambda job: ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        carry_out(tmp_path, conductor.begin(tmp_path, what), what)


def test_other_code_is_refused_by_a_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    what = order("approach=s-tx", "stalls=false")
    carried_out(tmp_path, what)
    code = provenance.code()
    monkeypatch.setattr(provenance, "code", lambda modules: {**code, "client": "other"})
    with pytest.raises(ResumeRefused, match="the code of the client"):
        conductor.resume(tmp_path, what)


def test_another_choice_of_cells_or_delays_is_refused_by_a_resume(tmp_path: Path) -> None:
    carried_out(tmp_path, order("approach=s-tx", "stalls=false"))
    with pytest.raises(ResumeRefused, match="experiment has changed"):
        conductor.resume(tmp_path, order("approach=d-tx", "stalls=false"))
    with pytest.raises(ResumeRefused, match="testbed has changed"):
        conductor.resume(tmp_path, order("approach=s-tx", "stalls=false", with_delay=False))


def test_a_wait_is_calibrated_once_and_used_everywhere(
    tmp_path: Path, run: Runner, made: list[Setting]
) -> None:
    what = order("approach=bl-wait", "stalls=false")
    folder = carried_out(tmp_path, what)
    assert [setting.cell.id for setting in made] == [cell.id for cell in what.cells]
    waits = {job.unit.cell.id: job.wait_ms for job in run.jobs}
    assert waits == {"dispatching-bl-wait-b3-k1-c1": 101.0, "dispatching-bl-wait-b3-k1-c1-step1": 102.0}
    assert len(folder.run["calibrations"]) == 2

    second = carried_out(tmp_path, what)
    assert len(made) == 2
    assert second.calibration("dispatching-bl-wait-b3-k1-c1") == folder.calibration(
        "dispatching-bl-wait-b3-k1-c1"
    )


def test_a_cell_that_cannot_be_calibrated_is_left_out_and_the_others_are_run(
    tmp_path: Path, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(*_: object) -> Calibration:
        raise CalibrationFailed("no wait was enough")

    monkeypatch.setattr(calibrations, "make", make)
    what = order("approach=bl-wait,s-tx", "stalls=false", "step_ms=50,None", repeat=1)
    folder = conductor.begin(tmp_path, what)
    report = carry_out(tmp_path, folder, what)
    assert report.failed == ("dispatching-bl-wait-b3-k1-c1 #1",)
    assert {job.unit.cell.approach for job in run.jobs} == {"s-tx"}


def test_approaches_that_do_not_wait_need_no_calibration(
    tmp_path: Path, run: Runner, made: list[Setting]
) -> None:
    carried_out(tmp_path, order("approach=s-tx", "stalls=false"))
    assert not made
    assert {job.wait_ms for job in run.jobs} == {None}


@pytest.mark.parametrize("change", ["code", "machine"])
def test_a_stale_calibration_is_refused_and_made_anew_only_on_request(
    tmp_path: Path, run: Runner, made: list[Setting], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    what = order("approach=bl-wait", "stalls=false", "step_ms=50")
    carried_out(tmp_path, what)
    before = getattr(provenance, change)()
    monkeypatch.setattr(
        provenance, change, lambda *modules: {**before, "broker": "other", "model": "another"}
    )
    folder = conductor.begin(tmp_path, what)
    with pytest.raises(Stale, match="does not hold any more"):
        carry_out(tmp_path, folder, what)
    carry_out(tmp_path, folder, what, recalibrate=True)
    assert len(made) == 2
    assert run.jobs[-1].wait_ms == 102.0


def test_a_calibration_holds_only_for_its_placements_and_delays(tmp_path: Path, made: list[Setting]) -> None:
    only = ("approach=bl-wait", "stalls=false", "step_ms=50")
    for what in (order(*only), order(*only, seed=2), order(*only, repeat=1), order(*only, with_delay=False)):
        carried_out(tmp_path, what)
    assert len(made) == 4


def test_a_resume_refuses_when_the_calibration_was_made_anew(tmp_path: Path) -> None:
    what = order("approach=bl-wait", "stalls=false", "step_ms=50")
    carried_out(tmp_path, what)
    conductor.resume(tmp_path, what)
    setting = what.setting(what.cells[0])
    calibrations.keep(tmp_path, setting, calibrations.make(setting, Nowhere(), tmp_path))
    with pytest.raises(ResumeRefused, match="made anew"):
        conductor.resume(tmp_path, what)


def test_a_calibration_asked_for_by_itself_is_made_for_every_cell_with_the_step_that_was_asked_for(
    tmp_path: Path, made: list[Setting]
) -> None:
    request = CalibrationRequest(
        name="base",
        profile=QUICK,
        only=("approach=bl-wait", "stalls=false"),
        results=tmp_path,
        procedure="paper",
        step_ms=5.0,
    )
    what = conductor.order_of_calibrations(request)
    [artefact] = conductor.calibrate(request, what, Nowhere(), Silent())
    [setting] = made
    assert (setting.cell.step_ms, setting.procedure) == (5.0, "paper")
    assert artefact["cell"] == setting.cell.id
    assert read_json(Path(artefact["path"]))["wait_ms"] == artefact["wait_ms"] == 101.0


def test_without_delays_there_are_no_stalls_either() -> None:
    what = conductor.order(RunRequest(name="base", profile=PROFILES["standard"], with_delay=False))
    assert not any(cell.stalls for cell in what.cells)
    assert what.run()["testbed"]["delay"] is None


def test_a_run_says_what_it_was_made_with() -> None:
    run = order("approach=s-tx", "stalls=false").run()
    assert set(run["code"]) == {"broker", "client", "runner"}
    assert run["machine"]["cpus"] >= 1
    assert run["testbed"]["delay"]["client_ms"] == 3.3
    assert run["versions"]["msgspec"]


@pytest.mark.parametrize(
    ("transactions", "placements", "shares"), [(200, 5, [40] * 5), (7, 3, [3, 2, 2]), (2, 5, [1, 1])]
)
def test_transactions_are_spread_evenly_over_placements(
    transactions: int, placements: int, shares: list[int]
) -> None:
    assert calibrations.spread(transactions, placements) == shares
