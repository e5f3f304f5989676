"""What slow tests share: the cloud, which is started once, when the first test asks for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.openstack import control_plane as planes
from tests.openstack.control_plane import ControlPlane
from tests.openstack.labs import User


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the cloud come last: it takes memory and some of the cores from those that measure."""

    def needs_cloud(item: pytest.Item) -> bool:
        return "control_plane" in getattr(item, "fixturenames", ())

    items.sort(key=needs_cloud)
    for item in filter(needs_cloud, items):
        # The library warns of what it does itself, at every request.
        for kind in ("openstack.warnings.OpenStackDeprecationWarning", "PendingDeprecationWarning"):
            item.add_marker(pytest.mark.filterwarnings(f"ignore::{kind}"))


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A real OpenStack; without its parts the test is skipped, or fails in CI.

    Who works on these tests starts one by hand, and names its folder in LABCTL_TESTS_OPENSTACK.
    """
    if folder := os.environ.get("LABCTL_TESTS_OPENSTACK"):
        with planes.attached(Path(folder)) as plane:
            yield plane
        return
    if reason := planes.missing():
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    with planes.running(tmp_path_factory.mktemp("openstack")) as plane:
        yield plane


@pytest.fixture
def new_user(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Callable[[str], User]]:
    """A member of the cloud's project with an empty home. What a test that failed has left goes with it: others
    need the room."""
    users: list[User] = []

    def make(name: str) -> User:
        home = tmp_path / name
        home.mkdir()
        users.append(User(home, control_plane.clouds_file))
        return users[-1]

    yield make
    for user in users:
        user.clouds = control_plane.clouds_file
        for lab in user.labs():
            user.labctl("destroy", "--lab", lab)


@pytest.fixture
def user(new_user: Callable[[str], User]) -> User:
    return new_user("home")
