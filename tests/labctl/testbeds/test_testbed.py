"""The testbed file: what it may say, what the defaults are, and how a mistake is named."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from labctl.paths import PROJECT
from labctl.testbeds.testbed import (
    Bastion,
    ExistingNetwork,
    FlavorSize,
    Floating,
    HostEntry,
    HostsOptions,
    MadeNetwork,
    OpenStackOptions,
    Testbed,
    TestbedError,
    duration_s,
)
from labctl.testbeds.testbed_file import load, resolve

EXAMPLES = PROJECT / "experiments" / "testbeds"


def read(folder: Path, text: str) -> Testbed:
    path = folder / "bed.yaml"
    path.write_text(text)
    return load(path)


def cloud(folder: Path, text: str) -> OpenStackOptions:
    options = read(folder, "provider: openstack\n" + text).options
    assert isinstance(options, OpenStackOptions)
    return options


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(TestbedError) as caught:
        read(folder, text)
    return str(caught.value)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_can_be_read(path: Path) -> None:
    assert load(path).provider == path.stem


def test_the_openstack_example_states_the_defaults() -> None:
    assert load(EXAMPLES / "openstack.yaml") == resolve("openstack")


def test_a_cloud_by_default_gives_the_machines_of_the_paper() -> None:
    options = resolve("openstack").options
    assert isinstance(options, OpenStackOptions)
    assert options.flavor == FlavorSize(vcpus=2, memory_gb=4.0)


def test_a_flavor_is_a_name_or_a_size(tmp_path: Path) -> None:
    assert cloud(tmp_path, "flavor: m1.small").flavor == "m1.small"
    assert cloud(tmp_path, "flavor: {vcpus: 1, disk_gb: 5}").flavor == FlavorSize(1, 4.0, 5.0)


def test_a_network_exists_or_is_made(tmp_path: Path) -> None:
    assert cloud(tmp_path, "network: private").network == ExistingNetwork("private")
    assert cloud(tmp_path, "network: {cidr: 10.1.0.0/24}").network == MadeNetwork("10.1.0.0/24")


def test_hosts_are_reached_directly_through_a_bastion_or_by_floating_addresses(tmp_path: Path) -> None:
    bed = "provider: openstack\nreach: "
    assert read(tmp_path, bed + "{bastion: me@gate.example:2022}").reach == Bastion(
        "gate.example", "me", 2022
    )
    assert read(tmp_path, bed + "{floating: public}").reach == Floating("public")


def test_a_host_is_written_short_or_in_parts(tmp_path: Path) -> None:
    text = "provider: hosts\nhosts:\n- me@h1:2222\n- {address: h2, name: two, role: client}\n"
    assert read(tmp_path, text).options == HostsOptions(
        (HostEntry("h1", user="me", port=2222), HostEntry("h2", "two", "client"))
    )


def test_machines_are_as_many_as_are_written_and_one_for_each_otherwise(tmp_path: Path) -> None:
    assert read(tmp_path, "provider: hosts\nmachines: 2").machines == 2
    assert read(tmp_path, "provider: hosts").machines is None


@pytest.mark.parametrize(
    ("text", "place", "hint"),
    [
        ("provider: opnstack", "line 1", "did you mean 'openstack'?"),
        ("provider: openstack\nflavour: m1", "line 2", "did you mean 'flavor'?"),
        ("provider: openstack\nflavor: {vcpu: 2}", "line 2", "did you mean 'vcpus'?"),
        ("provider: openstack\nplacement: spred", "line 2", "did you mean 'spread'?"),
        ("provider: openstack\nready: sssh", "line 2", "did you mean 'ssh'?"),
        ("provider: openstack\nreach: {bastoin: x}", "line 2", "did you mean 'bastion'?"),
        ("provider: openstack\nreach: {bastion: x, floating: y}", "line 2", "name one of the two"),
        ("provider: openstack\nreach: {bastion: 'a b'}", "line 2", "user@host:port"),
        ("provider: openstack\n\nlifetime: long", "line 3", "90m, 8h or 2d"),
        ("provider: openstack\nlifetime: 0h", "line 2", "90m, 8h or 2d"),
        ("provider: openstack\nnetwork: {cidr: 10.0.0.1/8}", "line 2", "10.77.0.0/22"),
        ("provider: openstack\nssh: {port: 70000}", "line 2", "1 to 65535"),
        ("provider: openstack\nssh:\n  allow_from: [all]", "line 3", "10.77.0.0/22"),
        ("provider: openstack\ntimeouts: {build: 3}", "line 2", "did you mean 'build_s'?"),
        ("provider: openstack\ntimeouts: {build_s: 0}", "line 2", "longer than nothing"),
        ("provider: openstack\nflavor: {vcpus: 0}", "line 2", "at least one vCPU"),
        ("provider: netns\nmachines: 0", "line 2", "at least one machine"),
        ("provider: netns\nimage: debian", "line 2", "unknown key 'image'"),
        ("provider: hosts\nreach: {floating: public}", "line 1", "come from a cloud"),
        ("provider: hosts\nhosts:\n- {name: x}", "line 3", "has an address"),
        ("provider: hosts\nhosts:\n- {address: x, role: brokr}", "line 3", "did you mean 'broker'?"),
        ("provider: hosts\nhosts: [{address: a, name: x}, {address: b, name: x}]", "line 2", "twice"),
        ("image: debian-12", "line 1", "which provider?"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_the_way_out(
    tmp_path: Path, text: str, place: str, hint: str
) -> None:
    said = refusal(tmp_path, text)
    assert f"bed.yaml, {place}:" in said
    assert hint in said


def test_a_testbed_that_is_neither_kind_nor_file_is_refused_with_the_nearest_kind() -> None:
    with pytest.raises(TestbedError, match="did you mean 'openstack'"):
        resolve("openstak")


def test_a_testbed_survives_being_written_down(tmp_path: Path) -> None:
    bed = read(tmp_path, "provider: openstack\nreach: {floating: public}\nnetwork: private\nflavor: m1")
    assert msgspec.json.decode(msgspec.json.encode(bed), type=Testbed) == bed


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90m", 5400), ("1.5h", 5400), ("2d", 172800), ("30 s", 30), ("5", None), ("", None)],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert duration_s(text) == seconds
