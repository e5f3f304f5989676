"""A dry run is the run itself, on hosts that only write down what they are asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from labctl.conduct import conductor
from labctl.conduct.conductor import RunOrder
from labctl.conduct.request import CellsRequest
from labctl.experiment.schedule import profile_of
from labctl.output import Output
from labctl.run.places import SiteError
from labctl.testbeds.labs import lab
from labctl.testbeds.labs.lab import Host, HostState
from labctl.testbeds.labs.store import Store
from labctl.testbeds.remote import dry, wheels
from labctl.testbeds.remote.bundles import Bundle, pack
from labctl.testbeds.remote.placing import TooFewHosts
from labctl.testbeds.ssh.connections import Connections
from labctl.testbeds.testbed_file import resolve


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def packages(kind: wheels.HostKind) -> Bundle:
        return pack("packages", {f"{kind.machine}.py": b""})

    def refuse(_: Connections, host: Host) -> None:
        raise AssertionError(f"a connection to {host.name}")

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(wheels, "packages", packages)
    monkeypatch.setattr(Connections, "to", refuse)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def order(*only: str) -> RunOrder:
    profile = profile_of("quick")
    return conductor.order(CellsRequest(name="base", profile=profile, only=("stalls=false", *only)))


def made(brokers: int, clients: int, state: HostState = "ready") -> Store:
    """A lab as `provision` leaves it."""
    drawn = lab.sized(lab.new("l", resolve("netns"), 0.0), brokers, clients)
    hosts = [
        structs.replace(host, state=state, address=f"10.0.0.{number}")
        for number, host in enumerate(drawn.hosts, start=1)
    ]
    store = Store("l")
    store.write(drawn.with_hosts(hosts))
    return store


def purposes(lines: list[str]) -> list[str]:
    return [line.rpartition("    # ")[2] for line in lines]


def test_a_host_is_prepared_brought_everything_and_given_an_agent_before_the_first_cell(
    tmp_path: Path,
) -> None:
    what = order("approach=s-tx")
    found = dry.commands(made(3, 4), what, False, Output(False))
    [cell] = what.cells
    assert list(found) == [f"broker-{n}" for n in (1, 2, 3)] + [f"client-{n}" for n in (1, 2, 3, 4)]
    first, brought, *others = purposes(found["broker-2"])
    assert first == "Python, disk, and what is there already"
    assert brought.startswith("bring code and packages")
    assert others == [
        "the agent; it stays",
        "of earlier runs",
        f"{cell.id}: a place for files",
        f"{cell.id}: its settings",
        f"{cell.id}: broker b2",
        f"{cell.id}: whatever still runs",
        f"{cell.id}: logs and histories of the repetition",
        f"{cell.id}: they are at home now",
    ]
    assert f"{cell.id}: observer" in purposes(found["broker-1"])
    assert list((tmp_path / "here").iterdir()) == []


def test_clients_are_shown_with_the_broker_that_they_go_to() -> None:
    what = order("approach=s-tx")
    found = dry.commands(made(3, 4), what, False, Output(False))
    [cell] = what.cells
    clients = {
        line.rpartition("client ")[2]: line
        for lines in found.values()
        for line in lines
        if "python3 -m client --" in line
    }
    assert set(clients) == {"E", "D", "A1", "A2"}
    assert all(f"/runs/{cell.id}-ID/history/{name}.jsonl" in line for name, line in clients.items())
    placement = what.units()[0].placement
    assert all(f"--broker=10.0.0.{placement[name][1:]}:PORT" in line for name, line in clients.items())


def test_every_cell_is_shown_and_everything_once() -> None:
    what = order()
    found = dry.commands(made(3, 4), what, False, Output(False))
    assert len(what.cells) > 1
    said = purposes(found["broker-1"])
    assert [f"{cell.id}: broker b1" in said for cell in what.cells] == [True] * len(what.cells)
    assert len(said) == len(set(said))


def test_what_stops_the_run_stops_the_dry_run() -> None:
    with pytest.raises(TooFewHosts, match="--pack"):
        dry.commands(made(1, 1), order(), False, Output(False))
    assert dry.commands(made(1, 1), order(), True, Output(False))
    with pytest.raises(SiteError, match="no host of the lab l is ready"):
        dry.commands(made(3, 4, state="failed"), order(), False, Output(False))
