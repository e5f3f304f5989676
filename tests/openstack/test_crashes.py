"""`kill -9` at every request that changes something, in a provision and in a destroy: what is left can
always be destroyed, to the last thing.

On the smallest lab, one broker and one client; LABCTL_TESTS_SWEEP_HOSTS=7 takes a larger one. A proxy kills labctl when the cloud has carried a request
out and labctl has no answer, and again when it has the answer and has not written it down.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.openstack.control_plane import ControlPlane
from tests.openstack.labs import Done, User, inventory
from tests.openstack.proxy import MOMENTS, Moment, Proxy, proxied
from tests.support.brokers import wait_for

HOSTS = int(os.environ.get("LABCTL_TESTS_SWEEP_HOSTS", "2"))
BROKERS = HOSTS // 2
PROVISION_CHANGES = 8 + HOSTS
"""Network, subnet and security group, each with its tag; the rules; the server group; the servers."""
DESTROY_CHANGES = 4 + HOSTS
AT_ONCE = 3
"""Labs that are broken at the same time: most of a sweep is waiting for the cloud."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600 * HOSTS)]


def provision(user: User, proxy: Proxy) -> Done:
    size = ("--brokers", str(BROKERS), "--clients", str(HOSTS - BROKERS))
    return user.labctl("provision", "--lab", user.home.name, "--testbed", user.bed(), *size, proxy=proxy)


def destroy(user: User, proxy: Proxy | None = None) -> Done:
    return user.labctl("destroy", "--lab", user.home.name, "--json", proxy=proxy)


def kill_in_provision(user: User, proxy: Proxy, position: int, moment: Moment) -> None:
    proxy.kill(position, moment)
    killed = provision(user, proxy)
    assert killed.code == -signal.SIGKILL, killed.stderr


def kill_in_destroy(user: User, proxy: Proxy, position: int, moment: Moment) -> None:
    made = provision(user, proxy)
    assert made.code == 0, made.stderr
    assert len(proxy.changes) == PROVISION_CHANGES, proxy.changes
    proxy.forget()
    proxy.kill(position, moment)
    killed = destroy(user, proxy)
    assert killed.code == -signal.SIGKILL, killed.stderr


Crash = Callable[[User, Proxy, int, Moment], None]
SWEEPS: dict[str, tuple[Crash, int]] = {
    "provision": (kill_in_provision, PROVISION_CHANGES),
    "destroy": (kill_in_destroy, DESTROY_CHANGES),
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("command", SWEEPS)
def test_after_a_kill_at_any_change_destroy_leaves_exactly_nothing(
    control_plane: ControlPlane, tmp_path: Path, command: str, moment: Moment
) -> None:
    crash, changes = SWEEPS[command]
    before = inventory(control_plane)

    def broken(position: int) -> str:
        """What is wrong after a kill at this position; empty when nothing is."""
        home = tmp_path / f"{command}-{position}"
        home.mkdir()
        with proxied(control_plane.places) as proxy:
            proxy.write_clouds(control_plane.clouds_file, home / "clouds.yaml")
            user = User(home, home / "clouds.yaml")
            crash(user, proxy, position, moment)
            wait_until_idle(proxy)
            at = proxy.changes[-1]
            ended = destroy(user)
        if ended.code or (home / "labctl" / "labs" / home.name).exists():
            return f"killed at change {position}, {at}: {ended.code} {ended.stderr} {ended.stdout}"
        return ""

    with ThreadPoolExecutor(AT_ONCE) as pool:
        problems = [problem for problem in pool.map(broken, range(1, changes + 1)) if problem]
    assert problems == []
    assert inventory(control_plane) == before


def test_a_provision_after_a_kill_completes_the_lab_and_creates_nothing_twice(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    """It has no change to make beyond those of the sweep, so that none is left out there."""
    before = inventory(control_plane)
    home = tmp_path / "completed"
    home.mkdir()
    with proxied(control_plane.places) as proxy:
        proxy.write_clouds(control_plane.clouds_file, home / "clouds.yaml")
        user = User(home, home / "clouds.yaml")
        kill_in_provision(user, proxy, PROVISION_CHANGES, "carried out, not answered")
        wait_until_idle(proxy)
        proxy.forget()
        done = provision(user, proxy)
        assert done.code == 0, done.stderr
        assert proxy.changes == []
        made = inventory(control_plane)
        assert {kind: len(things - before.get(kind, set())) for kind, things in made.items()} == {
            "network": 1,
            "subnet": 1,
            "security-group": 1,
            "server-group": 1,
            "server": HOSTS,
            "port": HOSTS,
        }
        assert destroy(user, proxy).code == 0
        assert len(proxy.changes) == DESTROY_CHANGES, proxy.changes
    assert inventory(control_plane) == before


def wait_until_idle(proxy: Proxy) -> None:
    """A request that had left before the kill is carried out all the same."""
    wait_for("a quiet proxy", proxy.is_idle, 60)
