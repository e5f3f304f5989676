"""The parts of the OpenStack provider that are functions of their arguments: choices, rules, requests."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from labctl.testbeds.labs import lab as labs
from labctl.testbeds.labs.journal import LabEntry
from labctl.testbeds.labs.lab import Host, Lab
from labctl.testbeds.providers.openstack import choose, ground, kinds
from labctl.testbeds.providers.openstack.choose import Flavor, Image, Named
from labctl.testbeds.providers.openstack.cloud import CloudRefused, patiently
from labctl.testbeds.providers.openstack.ground import Ground, Rule
from labctl.testbeds.providers.openstack.kinds import Thing
from labctl.testbeds.providers.openstack.machines import fault, fixed_address, request
from labctl.testbeds.providers.openstack.userdata import user_data
from labctl.testbeds.providers.provider import AcquirePlan, ProviderError, ProviderQuota
from labctl.testbeds.testbed import (
    ExistingNetwork,
    FlavorSize,
    Floating,
    OpenStackOptions,
    SshOptions,
    Testbed,
)
from labctl.testbeds.timeouts import Timeouts

IMAGE = Image("i1", "debian-12", min_disk_gb=5)
FLAVORS = [
    Flavor("1", "tiny", 1, 512, 1),
    Flavor("2", "big", 8, 16384, 80),
    Flavor("3", "paper", 2, 4096, 10),
    Flavor("4", "paper-4", 4, 4096, 10),
    Flavor("5", "little-disk", 2, 4096, 2),
]


def lab(testbed: Testbed | None = None) -> Lab:
    bed = testbed or Testbed("openstack", OpenStackOptions())
    return labs.sized(labs.new("small", bed, 0.0), 1, 1)


def test_the_smallest_flavor_that_is_large_enough_is_taken() -> None:
    assert choose.pick_flavor(FlavorSize(), IMAGE, FLAVORS).name == "paper"
    assert choose.pick_flavor(FlavorSize(vcpus=3), IMAGE, FLAVORS).name == "paper-4"
    assert choose.pick_flavor(FlavorSize(disk_gb=40), IMAGE, FLAVORS).name == "big"


def test_a_flavor_too_small_for_the_image_is_not_taken() -> None:
    assert choose.pick_flavor(FlavorSize(), Image("i", "x"), FLAVORS).name == "little-disk"
    with pytest.raises(ProviderError, match="needs 5 GB of disk"):
        choose.pick_flavor("little-disk", IMAGE, FLAVORS)


def test_no_flavor_large_enough_is_said_with_the_largest() -> None:
    with pytest.raises(ProviderError, match=r"no flavor has 99 vCPU.*the largest are big"):
        choose.pick_flavor(FlavorSize(vcpus=99), IMAGE, FLAVORS)


def test_an_unknown_name_is_answered_with_the_nearest_and_the_rest() -> None:
    with pytest.raises(ProviderError, match="did you mean 'paper'"):
        choose.pick_flavor("papr", IMAGE, FLAVORS)
    with pytest.raises(ProviderError, match="the cloud shows none at all"):
        choose.pick("image", "debian-12", [])


def test_two_of_one_name_are_told_apart_by_id() -> None:
    twins = [Image("a", "twin"), Image("b", "twin")]
    assert choose.pick("image", "b", twins).id == "b"
    with pytest.raises(ProviderError, match="ambiguous: name one by its id: a, b"):
        choose.pick("image", "twin", twins)
    networks = [Named("n1", "x"), Named("n2", "x")]
    assert choose.pick("network", "n1", networks) == Named("n1", "x")
    with pytest.raises(ProviderError, match="ambiguous"):
        choose.pick("network", "x", networks)


def test_a_lab_needs_a_router_only_for_floating_addresses_on_its_own_network() -> None:
    def kinds_of(bed: Testbed) -> set[str]:
        return {kind.name for kind in ground.names(lab(bed))}

    made = OpenStackOptions()
    existing = OpenStackOptions(network=ExistingNetwork("x"), placement="any")
    basic = {"network", "subnet", "security-group", "server-group"}
    assert kinds_of(Testbed("openstack", made)) == basic
    assert kinds_of(Testbed("openstack", made, reach=Floating("p"))) == basic | {"router"}
    assert kinds_of(Testbed("openstack", existing, reach=Floating("p"))) == {"security-group"}


def test_only_ssh_comes_in_from_outside() -> None:
    bed = Testbed("openstack", OpenStackOptions(), ssh=SshOptions(port=2222))
    rules = ground.rules(lab(bed), ("192.0.2.7/32", "2001:db8::/64"))
    assert rules == (
        Rule("tcp", 2222, "192.0.2.7/32"),
        Rule("tcp", 2222, "2001:db8::/64"),
        Rule(None, None, ""),
    )
    assert [rule.family for rule in rules] == ["IPv4", "IPv6", "IPv4"]


def entry(kind: str = "server", mark: str = "m1", identity: str = "") -> LabEntry:
    return LabEntry(1, kind, "name", mark, 0.0, id=identity)


def test_only_what_carries_the_tag_and_the_mark_and_the_recorded_id_is_ours() -> None:
    place = lab()
    thing = Thing("server", "id-1", "name", frozenset({place.tag}), "m1")
    assert kinds.ours(thing, entry(), place)
    assert kinds.ours(thing, entry(identity="id-1"), place)
    assert not kinds.ours(thing, entry(identity="id-2"), place)
    assert not kinds.ours(thing, entry(mark="m2"), place)
    assert not kinds.ours(thing, entry(kind="network"), place)
    untagged = Thing("server", "id-1", "name", frozenset({"labctl-other"}), "m1")
    assert not kinds.ours(untagged, entry(identity="id-1"), place)


def test_a_server_is_tagged_and_marked_in_the_request_that_creates_it() -> None:
    place = lab()
    choice = choose.Choice(IMAGE, FLAVORS[2], None, None)
    body = request(
        place, place.hosts[0], entry(), choice, Ground("net", "group", "together"), "#cloud-config"
    )
    assert place.tag in body["tags"]
    assert body["metadata"] == kinds.metadata(place, "m1")
    assert body["security_groups"] == [{"name": "group"}]
    assert body["scheduler_hints"] == {"group": "together"}
    assert "key_name" not in body


def test_the_fixed_address_is_told_from_the_floating_one() -> None:
    floating = {"addr": "198.51.100.9", "version": 4, "OS-EXT-IPS:type": "floating"}
    six = {"addr": "2001:db8::5", "version": 6, "OS-EXT-IPS:type": "fixed"}
    four = {"addr": "10.77.0.5", "version": 4, "OS-EXT-IPS:type": "fixed"}
    assert fixed_address(SimpleNamespace(addresses={"n": [floating, six, four]})) == "10.77.0.5"
    assert fixed_address(SimpleNamespace(addresses={"n": [six]})) == "2001:db8::5"
    assert fixed_address(SimpleNamespace(addresses=None)) == ""


def test_a_fault_is_quoted_and_advised_about() -> None:
    raw = SimpleNamespace(fault={"message": "No valid host was found. "})
    said = fault(Thing("server", "i", "n", frozenset(), "", raw))
    assert said == (
        "the server is in ERROR: No valid host was found; no hypervisor has room for the flavor, take a "
        "smaller one or try later"
    )
    assert "no reason given" in fault(Thing("server", "i", "n", frozenset(), "", SimpleNamespace(fault=None)))


def told(expires_at_s: float = 0.0) -> dict[str, object]:
    host = Host("broker-1", "broker", "debian", host_key="ssh-ed25519 AAAAhost")
    text = user_data(host, "small-broker-1", "ssh-ed25519 AAAAlab me", "PRIVATE\nKEY\n", expires_at_s)
    assert text.startswith("#cloud-config\n")
    found: dict[str, object] = json.loads(text.removeprefix("#cloud-config\n"))
    return found


def test_a_machine_offers_no_host_key_but_ours() -> None:
    config = told()
    assert config["ssh_deletekeys"] is True
    assert config["ssh_genkeytypes"] == []
    assert config["ssh_keys"] == {
        "ed25519_private": "PRIVATE\nKEY\n",
        "ed25519_public": "ssh-ed25519 AAAAhost",
    }


def test_a_machine_lets_nobody_in_by_password() -> None:
    config = told()
    assert config["ssh_pwauth"] is False
    assert config["disable_root"] is True


def test_a_machine_shuts_itself_down_at_a_point_in_time() -> None:
    assert "OnCalendar=2026-11-16 12:00:00 UTC\nPersistent=true" in json.dumps(told(1794830400)).replace(
        "\\n", "\n"
    )


QUICK = Timeouts(retry_s=60.0, poll_s=0.001)


def test_a_question_without_an_answer_is_repeated() -> None:
    asked = []

    def ask() -> int:
        asked.append(1)
        if len(asked) < 3:
            raise ProviderError("lost")
        return 7

    assert patiently(ask, QUICK) == 7


def test_a_no_is_an_answer() -> None:
    asked = []

    def ask() -> None:
        asked.append(1)
        raise CloudRefused("no")

    with pytest.raises(CloudRefused):
        patiently(ask, QUICK)
    assert len(asked) == 1


def test_a_question_is_not_repeated_for_ever() -> None:
    def ask() -> None:
        raise ProviderError("lost")

    with pytest.raises(ProviderError, match="lost"):
        patiently(ask, Timeouts(retry_s=0.01, poll_s=0.001))


def test_a_shortage_is_named_and_no_limit_is_none() -> None:
    plan = AcquirePlan(
        quota={
            "cores": ProviderQuota(4, 3),
            "ports": ProviderQuota(4, None),
            "instances": ProviderQuota(2, 2),
        }
    )
    assert plan.shortages == ("cores: 4 needed, 3 left",)
