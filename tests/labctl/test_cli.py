"""The command line: exit codes, what goes to which stream, and help that teaches. Starts no broker."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from labctl.checkup import Check
from labctl.cli import app
from labctl.output import Output, aligned, byte_size, print_error
from labctl.overlay import doctor, local
from labctl.topology import Topology

COMMANDS = [
    ["doctor"],
    ["overlay", "up"],
    ["overlay", "status"],
    ["overlay", "restart"],
    ["overlay", "down"],
    ["overlay", "list"],
    ["bench"],
    ["bench", "matching"],
    ["bench", "transactions"],
    ["bench", "history"],
    ["simulate"],
    ["simulate", "campaign"],
    ["simulate", "replay"],
    ["simulate", "explore"],
    ["simulate", "measure"],
    ["simulate", "soak"],
    ["check"],
    ["schema"],
    ["run", "experiment"],
    ["calibrate-wait"],
]


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def labctl(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, arguments)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself_with_an_example(command: list[str]) -> None:
    code, out, _ = labctl(*command, "--help")
    assert code == 0
    assert f"labctl {' '.join(command)}" in out
    assert "Example" in out


def test_the_version_is_told() -> None:
    code, out, _ = labctl("--version")
    assert code == 0
    assert out.startswith("labctl ")


def test_an_unknown_command_is_a_usage_error_that_names_the_nearest() -> None:
    code, out, err = labctl("overlay", "statsu")
    assert (code, out) == (2, "")
    assert "status" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["overlay", "up", "--brokers", "0"],
        ["overlay", "up", "--delay-ms", "-1"],
        ["overlay", "up", "--sigma", "1000"],
        ["overlay", "up", "--brokers", "3", "--topology", "x.yaml"],
        ["overlay", "up", "--topology", "/nowhere/x.yaml"],
        ["overlay", "up", "--name", "../escape"],
        ["overlay", "up", "--brokers", "9", "--base-port", "65530"],
        ["overlay", "status", "--name", "a/b"],
        ["bench", "--peer", "rabbitmq"],
    ],
    ids=" ".join,
)
def test_a_request_that_cannot_be_meant_ends_with_2_and_words_on_stderr(arguments: list[str]) -> None:
    code, out, err = labctl(*arguments)
    assert (code, out) == (2, "")
    assert err
    assert "Traceback" not in err


def test_a_cycle_in_a_topology_file_ends_with_2_and_is_named(tmp_path: Path) -> None:
    file = tmp_path / "ring.yaml"
    file.write_text("links: [[b1, b2], [b2, b3], [b3, b1]]")
    code, _, err = labctl("overlay", "up", "--topology", str(file))
    assert code == 2
    assert "b1 - b2 - b3 - b1" in err


def test_the_status_of_an_overlay_that_is_not_there_ends_with_4_and_says_how_to_start_it() -> None:
    code, out, err = labctl("overlay", "status", "--json", "--name", "ghost")
    assert (code, out) == (4, "")
    assert "labctl overlay up --name ghost" in err


def test_stopping_what_is_not_there_is_done() -> None:
    assert labctl("overlay", "down") == (0, "overlay default: there is nothing to stop\n", "")
    assert labctl("overlay", "down", "--all") == (0, "there is no overlay to stop\n", "")


def test_nothing_to_list_is_an_empty_list_for_programs() -> None:
    code, out, _ = labctl("overlay", "list", "--json")
    assert (code, json.loads(out)) == (0, {"overlays": []})


def test_an_interrupted_command_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(local, "up", interrupted)
    code, out, err = labctl("overlay", "up", "--json")
    assert (code, out) == (130, "")
    assert "interrupted" in err


def test_delays_on_the_command_line_go_over_those_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Topology] = []

    def record(tree: Topology, *_: object) -> None:
        started.append(tree)
        raise KeyboardInterrupt

    monkeypatch.setattr(local, "up", record)
    file = tmp_path / "pair.yaml"
    file.write_text("links: [[b1, b2]]\ndelay: {brokers: {delay_ms: 9, sigma: 0.2}}")
    labctl(
        "overlay", "up", "--topology", str(file), "--delay-ms", "2.2", "--client-delay-ms", "3", "--seed", "5"
    )
    delay, to_clients = started[0].delay("b1", "b2"), started[0].client_delay
    assert (delay.delay_ms, delay.sigma, delay.seed) == (2.2, 0.2, 5)
    assert (to_clients.delay_ms, to_clients.sigma, to_clients.seed) == (3.0, 0.0, 5)


def test_doctor_prints_one_json_object_and_nothing_else() -> None:
    _, out, _ = labctl("doctor", "--json")
    document = json.loads(out)
    assert set(document) == {"ok", "checks"}
    assert all(set(check) == {"name", "ok", "advice", "detail", "required"} for check in document["checks"])


@pytest.mark.parametrize(("required", "code"), [(True, 4), (False, 0)])
def test_doctor_fails_only_by_what_is_required(
    monkeypatch: pytest.MonkeyPatch, required: bool, code: int
) -> None:
    bad = Check("limb", False, "broken", "rest it", required)
    monkeypatch.setattr(doctor, "examine", lambda: [bad])
    assert labctl("doctor", "--json")[0] == code
    told = labctl("doctor")
    assert told[0] == code
    assert "rest it" in told[1]


def test_results_without_a_terminal_are_aligned_lines_without_control_characters() -> None:
    lines = aligned(("name", "count"), [("b1", "7"), ("broker-2", "1,000")], (False, True))
    assert lines == ["name      count", "b1            7", "broker-2  1,000"]
    assert "\x1b" not in labctl("doctor")[1]


def test_results_on_a_terminal_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    Output().table("Brokers", ("id", "events"), [("b1", 1234567)])
    assert "1,234,567" in screen.getvalue()
    assert "─" in screen.getvalue()


def test_text_in_brackets_is_printed_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    print_error("links: [[b1, b2]] is [bold]not[/bold] a tree")
    assert "links: [[b1, b2]] is [bold]not[/bold] a tree" in screen.getvalue()


def test_with_json_words_for_people_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output(json=True)
    out.say("a word")
    out.table("T", ("a",), [(1,)])
    out.document({"x": 1})
    streams = capsys.readouterr()
    assert json.loads(streams.out) == {"x": 1}
    assert "a word" in streams.err


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2_500_000, "2.5 MB"), (10**12, "1000.0 GB")],
)
def test_sizes_are_told_in_the_unit_that_people_read(count: int, text: str) -> None:
    assert byte_size(count) == text


def test_the_installed_command_reports_an_expected_error_without_a_traceback(tmp_path: Path) -> None:
    done: Any = subprocess.run(
        [sys.executable, "-c", "from labctl.cli import main; main()", "overlay", "status"],
        capture_output=True,
        text=True,
        timeout=30,
        env={"XDG_STATE_HOME": str(tmp_path), "PATH": "/usr/bin"},
        check=False,
    )
    assert done.returncode == 4
    assert done.stdout == ""
    assert done.stderr == (
        "labctl: there is no overlay 'default'; `labctl overlay up --name default` starts one\n"
    )
