"""A cloud whose machines run, a user of it, and his lab of two machines; once for all tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.openstack import control_plane as planes
from tests.openstack.control_plane import ControlPlane
from tests.openstack.labs import User
from tests.vm import libvirt
from tests.vm.stages import Stages

FOLDER = libvirt.GUEST / "run"
"""Logs stay there until the next run."""
LARGE = ("db", "images", "nova", "rabbit")
STAGES = Stages()
BED = f"""provider: openstack
cloud: member
network: {libvirt.NETWORK}
machines: 2
lifetime: 3h
ssh: {{allow_from: [{libvirt.GATEWAY}/32]}}
# Where every instruction is translated, sshd takes its time to start again.
timeouts: {{connect_s: 30}}
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        # The library warns of what it does itself, at every request.
        for kind in ("openstack.warnings.OpenStackDeprecationWarning", "PendingDeprecationWarning"):
            item.add_marker(pytest.mark.filterwarnings(f"ignore::{kind}"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section("what it took")
    for line in STAGES.lines:
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def stages() -> Stages:
    return STAGES


@pytest.fixture(scope="session")
def cloud(stages: Stages) -> Iterator[ControlPlane]:
    if os.environ.get("LABCTL_TESTS_PRIVATE") != "true":
        pytest.fail("machines are plugged into this one's network; run `make test-vm`", pytrace=False)
    if reason := planes.missing() or libvirt.missing():
        pytest.fail(reason, pytrace=False)
    shutil.rmtree(FOLDER, ignore_errors=True)
    said: list[str] = []
    try:
        with planes.running(FOLDER, said.append, libvirt.Libvirt()) as plane:
            stages.note("control plane, image, DHCP", f"{float(said[-1].split()[0]):.0f} s")
            yield plane
    finally:
        for name in LARGE:
            shutil.rmtree(FOLDER / name, ignore_errors=True)


@pytest.fixture(autouse=True)
def consoles(cloud: ControlPlane) -> Iterator[None]:
    """What machines have written goes with them; as it was after the last test, it stays among the logs."""
    yield
    for console in (cloud.folder / "nova" / "instances").glob("*/console.log"):
        shutil.copy(console, cloud.folder / "log" / f"console-{console.parent.name}.log")


@pytest.fixture(scope="session")
def user(cloud: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> User:
    return User(tmp_path_factory.mktemp("home"), cloud.clouds_file)


@pytest.fixture(scope="session")
def bed(user: User) -> Path:
    path = user.home / "bed.yaml"
    path.write_text(BED)
    return path
