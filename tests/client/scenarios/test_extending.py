"""docs/extending.md is true: its files, typed as they stand, are run, judged and reported."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from labctl.paths import PROJECT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

PAGE = PROJECT / "docs" / "extending.md"
LIMIT_S = 500


def write_files(folder: Path) -> None:
    """Each code block goes into the file that the heading before it names."""
    text = PAGE.read_text()
    found = re.findall(r"^## [^\n]*`([\w./]+)`\n.*?^```\w+\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in found] == ["mine/stream.py", "mine/stubborn.py", "stream.yaml", "claims.yaml"]
    for name, content in found:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)


def commands() -> list[list[str]]:
    block = re.search(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert block is not None
    return [shlex.split(line) for line in block[1].splitlines()]


def labctl(folder: Path, *arguments: str) -> tuple[int, Any]:
    done = subprocess.run(
        [sys.executable, "-c", "from labctl.cli import main; main()", *arguments, "--json"],
        cwd=folder,
        env={**os.environ, "XDG_STATE_HOME": str(folder / "state")},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


def test_the_example_runs_and_its_claims_are_judged(tmp_path: Path) -> None:
    write_files(tmp_path)
    run, report = commands()
    assert run[0] == report[0] == "labctl"
    code, ran = labctl(tmp_path, *run[1:])
    assert (code, ran["done"], ran["failed"]) == (0, 9, [])
    made = json.loads((tmp_path / "results/stream/latest/run.json").read_text())
    assert {"module mine.stream", "module mine.stubborn"} <= set(made["code"])

    assert (ran["answer"], ran["committed"], ran["transactions"], ran["reasons"]) == ("valid", 450, 450, {})

    _, document = labctl(tmp_path, *report[1:])
    cells = {cell["id"]: cell for cell in document["cells"]}
    assert {cell["parameters"]["approach"] for cell in cells.values()} == {"d-tx", "s-tx", "mine.stubborn"}
    assert all(cell["valid"] is True and cell["committed"] == 150 for cell in cells.values())
    judged = {claim["id"]: claim for claim in document["claims"]}
    assert set(judged) == {"M1", "M2"}
    assert all(claim["measured"] > 0 and claim["interval"] for claim in judged.values())


def test_a_slip_of_the_hand_in_it_is_no_success_and_is_told_everywhere(tmp_path: Path) -> None:
    write_files(tmp_path)
    program = tmp_path / "mine" / "stream.py"
    program.write_text(program.read_text().replace("frame.publish(", "frame.publsh("))
    code, ran = labctl(tmp_path, "run", "experiment", "stream.yaml", "--profile", "quick")
    assert (code, ran["done"], ran["answer"]) == (1, 3, "invalid")
    assert (ran["committed"], ran["transactions"]) == (50, 150), "those of S-TX, which publishes a plan"
    wrong = {f"mine.stream-{approach}-b3-k1-c1" for approach in ("d-tx", "mine.stubborn")}
    assert {label.split()[0] for label in ran["reasons"]} == wrong
    because = "0 of 50 transactions committed (50 aborted: AttributeError: 'Transaction' object has no attribute 'publsh' (stream.py, line "
    assert all(because in reasons[0] for reasons in ran["reasons"].values())

    code, checked = labctl(tmp_path, "check", "results/stream/latest")
    verdicts = {part["cell"]: part["verdict"] for part in checked["repetitions"]}
    assert (code, checked["answer"]) == (1, "invalid")
    assert {cell for cell, verdict in verdicts.items() if verdict == "invalid"} == wrong

    code, document = labctl(tmp_path, "report", "results/stream/latest", "--claims", "claims.yaml")
    assert (code, {cell["id"]: cell["verdict"] for cell in document["cells"]}) == (1, verdicts)
    for cell in document["cells"]:
        assert any(because in text for text in cell["warnings"]) is (cell["id"] in wrong)
