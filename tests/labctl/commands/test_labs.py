"""provision, status, destroy and gc, as far as they need no provider: what they refuse, and with which code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from labctl.cli import app
from labctl.exits import UsageProblem
from labctl.testbeds.labs import lab as labs
from labctl.testbeds.labs.lab import Lab
from labctl.testbeds.labs.store import Store
from labctl.testbeds.providers import provisioning
from labctl.testbeds.providers.netns.machine import ThisMachine
from labctl.testbeds.providers.provisioning import Size
from labctl.testbeds.testbed import OpenStackOptions, Testbed
from labctl.testbeds.testbed_file import resolve
from labctl.testbeds.timeouts import Timeouts


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def refusal(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 2, done.output
    return done.stderr


def kept(lab: Lab) -> Store:
    place = Store(lab.name)
    place.write(lab)
    return place


def test_a_lab_needs_a_size() -> None:
    assert "--brokers N --clients M" in refusal("provision", "--testbed", "openstack")


def test_a_new_lab_needs_a_testbed() -> None:
    assert "name a testbed" in refusal("provision", "--brokers", "1")


def test_an_experiment_and_a_number_of_hosts_exclude_each_other() -> None:
    assert "leave --brokers" in refusal("provision", "--experiment", "base", "--brokers", "1")


def test_an_option_for_a_cloud_is_refused_elsewhere() -> None:
    assert "--image is for a cloud" in refusal(
        "provision", "--testbed", "netns", "--image", "x", "--brokers", "1"
    )


def test_a_lifetime_has_a_unit() -> None:
    assert "90m, 8h or 2d" in refusal("provision", "--lifetime", "8", "--brokers", "1")


def test_the_status_of_no_lab_is_a_usage_problem() -> None:
    assert "there is no lab 'x'" in refusal("status", "--lab", "x")


def test_destroying_what_is_not_there_is_no_harm() -> None:
    done = CliRunner().invoke(app, ["destroy", "--lab", "x"])
    assert done.exit_code == 0
    assert "nothing to destroy" in done.stdout


def test_collecting_nothing_is_no_harm() -> None:
    done = CliRunner().invoke(app, ["gc", "--json"])
    assert done.exit_code == 0
    assert '"labs": []' in done.stdout


def test_a_lab_grows_from_what_is_there() -> None:
    small = labs.sized(labs.new("lab", resolve("openstack"), 0.0), 1, 1)
    grown = provisioning.wanted(kept(small), None, Size(2, 1), now_s=1.0)
    assert grown.id == small.id
    assert [host.name for host in grown.hosts] == ["broker-1", "broker-2", "client-1"]


def test_time_outs_may_change_and_machines_may_not() -> None:
    place = kept(labs.sized(labs.new("lab", resolve("openstack"), 0.0), 1, 1))
    patient = Testbed("openstack", OpenStackOptions(), timeouts=Timeouts(build_s=9.0))
    assert provisioning.wanted(place, patient, Size(1, 1), 1.0).testbed.timeouts.build_s == 9.0
    other = Testbed("openstack", OpenStackOptions(image="other"))
    with pytest.raises(UsageProblem, match="another testbed"):
        provisioning.wanted(place, other, Size(1, 1), 1.0)


def test_a_lab_that_is_shared_stays_so_and_grows_when_more_machines_are_allowed() -> None:
    bed = resolve("openstack")
    first = provisioning.wanted(Store("lab"), bed, Size(3, 4, machines=2), now_s=0.0)
    assert [host.name for host in first.hosts] == ["broker-1", "client-1"]
    place = kept(first)
    for again in (
        provisioning.wanted(place, None, Size(3, 4), 1.0),
        provisioning.wanted(place, bed, Size(1, 1), 1.0),
    ):
        assert again == first
    assert [host.name for host in provisioning.wanted(place, None, Size(3, 4, machines=4), 1.0).hosts] == [
        "broker-1",
        "broker-2",
        "client-1",
        "client-2",
    ]
    with pytest.raises(UsageProblem, match="takes none away"):
        provisioning.wanted(place, None, Size(3, 4, machines=1), 1.0)


def test_a_plan_says_who_shares_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["provision", "--testbed", "netns", "--experiment", "base", "--dry-run", "--json"]
    monkeypatch.setattr(ThisMachine, "namespaces", lambda _self: frozenset())
    alone = json.loads(CliRunner().invoke(app, command).stdout)
    shared = json.loads(CliRunner().invoke(app, [*command, "--machines", "2"]).stdout)
    assert [each["kind"] for each in alone["create"]] == ["bridge", *["namespace"] * 7]
    assert [each["name"] for each in shared["create"]] == ["default", "broker-1", "client-1"]
    assert not any("share" in note for note in alone["notes"])
    assert "3 brokers and 4 clients share 2 hosts" in shared["notes"]


def test_a_lab_that_is_half_removed_or_over_is_not_completed() -> None:
    lab = labs.sized(labs.new("lab", resolve("openstack"), 0.0), 1, 1)
    with pytest.raises(UsageProblem, match="lifetime"):
        provisioning.wanted(kept(lab), None, Size(1, 1), now_s=lab.expires_at_s)
    with pytest.raises(UsageProblem, match="half removed"):
        provisioning.wanted(kept(lab.in_phase("removing")), None, Size(1, 1), now_s=1.0)


def test_only_labs_past_their_lifetime_are_collected() -> None:
    kept(labs.new("old", resolve("openstack"), 0.0))
    kept(labs.new("young", resolve("openstack"), 1000.0))
    assert [lab.name for lab in provisioning.expired(now_s=8 * 3600.0)] == ["old"]
