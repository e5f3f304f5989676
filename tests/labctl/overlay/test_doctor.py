"""`labctl doctor`: each check judges the fact it is given; only required ones fail the machine."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from labctl.checkup import Check
from labctl.overlay import doctor
from labctl.overlay.local import Overview


@pytest.mark.parametrize(
    ("check", "ok"),
    [
        (doctor.python_version((3, 10, 9)), False),
        (doctor.python_version((3, 11, 0)), True),
        (doctor.python_version((4, 0, 0)), True),
        (doctor.package("msgspec"), True),
        (doctor.package("no_such_package_here"), False),
        (doctor.loopback(), True),
        (doctor.open_files(1023), False),
        (doctor.open_files(1024), True),
        (doctor.open_files(resource.RLIM_INFINITY), True),
        (doctor.precise_timer(), True),
        (doctor.process_handles(present=False), False),
        (doctor.disk(10_000, Path("/x")), False),
        (doctor.disk(10**12, Path("/x")), True),
        (doctor.memory(10_000), False),
        (doctor.memory(10**10), True),
        (doctor.core_count(1), False),
        (doctor.core_count(2), True),
        (doctor.load(2.5, 2), False),
        (doctor.load(0.5, 2), True),
        (doctor.mosquitto(None), False),
        (doctor.mosquitto("/usr/sbin/mosquitto"), True),
    ],
)
def test_a_check_judges_its_fact_and_advises_only_when_it_is_bad(check: Check, ok: bool) -> None:
    assert check.ok is ok
    assert bool(check.advice) is not ok
    assert check.detail


def test_a_state_folder_that_is_a_file_is_reported_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "labctl").write_text("in the way")
    check = doctor.state_folder(tmp_path / "labctl")
    assert not check.ok
    assert "XDG_STATE_HOME" in check.advice


def test_a_state_folder_where_nothing_can_be_written_is_reported() -> None:
    """In /proc not even root can make one."""
    assert not doctor.state_folder(Path("/proc/labctl")).ok


def test_optional_checks_do_not_make_the_machine_unfit() -> None:
    assert doctor.all_required_ok([doctor.mosquitto(None), doctor.load(9.0, 2), doctor.open_files(4096)])


def test_a_required_check_does() -> None:
    assert not doctor.all_required_ok([doctor.open_files(16), doctor.mosquitto("/usr/sbin/mosquitto")])


@pytest.mark.parametrize(
    ("seen", "stale"),
    [
        (Overview("x", "up", 3, 3), False),
        (Overview("x", "up", 3, 2), True),
        (Overview("x", "starting", 3, 0), True),
        (Overview("x", "failed", 3, 0), False),
        (Overview("x", "failed", 3, 1), True),
        (Overview("x", "unknown", 0, 0), True),
    ],
)
def test_an_overlay_is_stale_when_it_is_not_as_it_was_left(seen: Overview, stale: bool) -> None:
    check = doctor.overlays([seen])
    assert check.ok is not stale
    assert ("labctl overlay down --name x" in check.advice) is stale


def test_available_memory_is_read_in_bytes() -> None:
    assert doctor.available_memory("MemTotal: 9 kB\nMemAvailable:   24 kB\n") == 24 * 1024
    assert doctor.available_memory("nothing of use") == 0


def test_the_whole_examination_runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    checks = {check.name: check for check in doctor.examine()}
    assert len(checks) == len(doctor.examine())
    assert str(tmp_path) in checks["state folder"].detail
    assert checks["python"].ok
