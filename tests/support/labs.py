"""A lab of network namespaces for tests, and labctl as a command that works on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from labctl.host import processes
from labctl.testbeds.providers.netns.machine import missing_programs

MAIN = "from labctl.cli import main; main()"
TINY = """
matrix:
  scenario: dispatching
  approach: s-tx
  brokers: 3
delay: {client_ms: 1, broker_ms: 1, sigma: 0.1}
"""


DEPLOY = """
import sys
from labctl.exits import LabError
from labctl.testbeds.remote import deploy
from labctl.testbeds.ssh.play import Player
from labctl.testbeds.ssh.connections import Connections
from labctl.testbeds.labs.store import Store
lab = Store("l").lab()
try:
    with Connections(Store("l"), lab) as connections:
        deploy.everywhere(Player(connections), lab.hosts, deploy.BundleStore(), lambda *words: print(*words, flush=True))
except LabError as error:
    print(error)
    sys.exit(error.exit_code)
"""


def require_namespaces() -> None:
    """Skips the test, or fails it in CI, where there can be no namespaces."""
    missing = missing_programs()
    reason = f"{', '.join(missing)} is not installed; tests/system-packages.sh installs it" if missing else ""
    if os.geteuid():
        reason = "network namespaces need root"
    if not reason:
        done = subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "true"], check=False)
        reason = "this machine does not let root make namespaces" if done.returncode else ""
    if reason and os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    if reason:
        pytest.skip(reason)


class Command:
    """labctl, with a state, a cache and results of its own."""

    def __init__(self, folder: Path, cidr: str) -> None:
        self.folder = folder
        self.testbed = folder / "testbed.yaml"
        self.testbed.write_text(f"provider: netns\ncidr: {cidr}\ntimeouts: {{boot_s: 60}}\n")
        self.experiment = folder / "tiny.yaml"
        self.experiment.write_text(TINY)
        self.environment = {
            **os.environ,
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", MAIN, *arguments],
            env=self.environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """What it says: the document with --json, all of it otherwise."""
        with self.start(*arguments) as process:
            try:
                out, err = process.communicate(timeout=110)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        assert process.returncode == code, out + err
        return out if "--json" in arguments else out + err

    def run(self, *arguments: str, lab: str = "l") -> tuple[str, ...]:
        profile = ("--profile", "quick", "--results", str(self.folder / "results"))
        return ("run", "experiment", str(self.experiment), "--lab", lab, *profile, *arguments)

    def deploy(self, code: int = 0) -> str:
        """Only that, to all hosts."""
        done = subprocess.run(
            [sys.executable, "-c", DEPLOY],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def lab(self, name: str = "l") -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.lab_file(name).read_text())
        return found

    def lab_file(self, name: str = "l") -> Path:
        return self.folder / "state" / "labctl" / "labs" / name / "lab.json"

    def host(self, host: str, name: str = "l") -> dict[str, Any]:
        found: dict[str, Any] = next(each for each in self.lab(name)["hosts"] if each["name"] == host)
        return found

    def edit_host(self, host: str, **changes: object) -> None:
        """As if something else were written down about a host."""
        lab = self.lab()
        for each in lab["hosts"]:
            if each["name"] == host:
                each.update(changes)
        self.lab_file().write_text(json.dumps(lab))

    def on_hosts(self, pattern: str) -> list[Path]:
        """What labctl has put into the homes of the lab's hosts."""
        hosts = (self.lab_file().parent / "hosts").iterdir()
        return [path for host in hosts for path in (host / "home" / ".labctl").glob(pattern)]

    @contextmanager
    def timeouts(self, **changes: float) -> Iterator[None]:
        """Others than the testbed's, for the length of a block."""
        lab = self.lab()
        usual = lab["testbed"]["timeouts"]
        try:
            lab["testbed"]["timeouts"] = {**usual, **changes}
            self.lab_file().write_text(json.dumps(lab))
            yield
        finally:
            lab["testbed"]["timeouts"] = usual
            self.lab_file().write_text(json.dumps(lab))

    @property
    def result(self) -> Path:
        return self.folder / "results" / "tiny" / "latest"

    def first_process(self, host: str) -> processes.Process:
        """The host's sshd, as this machine sees it."""
        found = inhabitants(self.host(host)["provider_id"])
        return next(
            each for each in found if "sshd" in " ".join(each.arguments) and "-D" in each.arguments[0]
        )

    def ours(self, host: str) -> list[str]:
        """Commands of labctl's that run on a host."""
        seen = inhabitants(self.host(host)["provider_id"])
        return [
            " ".join(each.arguments) for each in seen if each.arguments[:1] == ("python3",) and each.arguments
        ]


def inhabitants(namespace: str) -> list[processes.Process]:
    done = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=True)
    seen = (processes.look(int(pid)) for pid in done.stdout.split())
    return [process for process in seen if process is not None]
