"""A lab in a real cloud, from the plan to nothing left: provision, status, repeat, repair, grow, destroy.

Nova's hypervisor is the fake one, so that machines do not run; all that labctl talks to is real.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from labctl.testbeds.testbed import SSH_PORT
from tests.openstack.control_plane import ControlPlane
from tests.openstack.labs import User, inventory
from tests.openstack.seed import PUBLIC

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def small(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """A user with a lab of one broker and one client, for tests that only look at it."""
    home = tmp_path_factory.mktemp("small")
    user = User(home, control_plane.clouds_file)
    made = user.labctl("provision", "--testbed", user.bed(), "--brokers", "1", "--clients", "1", "--json")
    assert made.code == 0, made.stderr
    yield user
    assert user.labctl("destroy").code == 0


def servers(plane: ControlPlane, user: User, lab: str = "default") -> dict[str, Any]:
    """The lab's servers as the administrator sees them, by the names of the hosts."""
    ids = {host["provider_id"]: host["name"] for host in user.state(lab)["hosts"]}
    compute: Any = plane.connect("admin").compute
    return {ids[each.id]: each for each in compute.servers(all_projects=True) if each.id in ids}


def test_a_dry_run_says_what_would_be_created_and_creates_nothing(
    user: User, control_plane: ControlPlane
) -> None:
    before = inventory(control_plane)
    size = ("--brokers", "3", "--clients", "4")
    plan = user.labctl("provision", "--testbed", user.bed("lifetime: 2h"), *size, "--dry-run", "--json").json
    kinds = [each["kind"] for each in plan["create"]]
    assert kinds == ["network", "subnet", "security-group", "server-group"] + ["server"] * 7
    assert plan["create"][-1]["name"] == "labctl-default-client-4"
    assert plan["quota"]["cores"]["need"] == 14
    assert plan["quota"]["memory_mb"]["need"] == 7 * 4096
    assert plan["quota"]["instances"]["left"] >= 7
    assert plan["vm_hours"] == pytest.approx(14.0, abs=0.1)
    assert inventory(control_plane) == before
    assert not (user.home / "labctl" / "labs" / "default").exists()


def test_status_shows_every_host_with_state_and_address(small: User) -> None:
    shown = small.labctl("status", "--json")
    assert shown.code == 0, shown.stderr
    hosts = {host["name"]: host for host in shown.json["hosts"]}
    assert hosts.keys() == {"broker-1", "client-1"}
    assert {host["state"] for host in hosts.values()} == {"ready"}
    assert all(host["address"].startswith("10.77.") for host in hosts.values())


def test_a_second_provision_creates_nothing(small: User, control_plane: ControlPlane) -> None:
    before = inventory(control_plane)
    again = small.labctl("provision", "--testbed", small.bed(), "--json")
    assert again.code == 0, again.stderr
    assert inventory(control_plane) == before


def test_the_smallest_flavor_of_the_papers_size_is_taken(small: User, control_plane: ControlPlane) -> None:
    flavors = {server.flavor["original_name"] for server in servers(control_plane, small).values()}
    assert flavors == {"paper"}


def test_a_machine_is_told_our_host_key_the_labs_key_and_when_to_shut_down_and_no_credential(
    small: User, control_plane: ControlPlane
) -> None:
    compute: Any = control_plane.connect("admin").compute
    folder = small.home / "labctl" / "labs" / "default"
    for name, server in servers(control_plane, small).items():
        shown = compute.get(f"/servers/{server.id}", microversion="2.52").json()["server"]
        said = base64.b64decode(shown["OS-EXT-SRV-ATTR:user_data"]).decode()
        told = yaml.safe_load(said)
        assert told["ssh_keys"]["ed25519_private"] == (folder / "hostkeys" / name).read_text()
        assert told["users"][0]["ssh_authorized_keys"] == [(folder / "id_ed25519.pub").read_text().strip()]
        assert "OnCalendar=20" in told["write_files"][1]["content"]
        assert "member-password" not in said
        assert "auth_url" not in said


def test_ssh_is_open_from_here_and_everything_else_only_inside_the_lab(
    small: User, control_plane: ControlPlane
) -> None:
    network: Any = control_plane.connect("member").network
    tag = small.labctl("status", "--json").json["tag"]
    [group] = network.security_groups(tags=tag)
    rules = [rule for rule in group.security_group_rules if rule["direction"] == "ingress"]
    ssh = next(rule for rule in rules if rule["remote_ip_prefix"])
    inside = next(rule for rule in rules if rule["remote_group_id"])
    assert len(rules) == 2
    assert (ssh["remote_ip_prefix"], ssh["protocol"], ssh["port_range_max"]) == (
        "127.0.0.1/32",
        "tcp",
        SSH_PORT,
    )
    assert inside["remote_group_id"] == group.id
    ports = list(network.ports(security_groups=[group.id]))
    assert len({port.device_id for port in ports if group.id in port.security_group_ids}) == 2


def test_everything_carries_the_labs_tag(small: User, control_plane: ControlPlane) -> None:
    tag = small.labctl("status", "--json").json["tag"]
    member = control_plane.connect("member")
    network: Any = member.network
    compute: Any = member.compute
    assert len(list(compute.servers(tags=tag))) == 2
    for listing in (network.networks, network.subnets, network.security_groups):
        assert len(list(listing(tags=tag))) == 1
    assert any(tag in group.name for group in compute.server_groups())


def test_the_life_of_a_lab_leaves_nothing_behind(user: User, control_plane: ControlPlane) -> None:
    """Provisioned, broken in three ways, repaired and grown at once, destroyed twice."""
    before = inventory(control_plane)
    bed = user.bed()
    assert user.labctl("provision", "--testbed", bed, "--brokers", "3", "--clients", "0").code == 0
    was = servers(control_plane, user)
    admin: Any = control_plane.connect("admin").compute
    admin.delete_server(was["broker-1"].id)
    admin.wait_for_delete(was["broker-1"], wait=60)
    admin.reset_server_state(was["broker-2"].id, "error")
    admin.stop_server(was["broker-3"].id)
    admin.wait_for_server(was["broker-3"], status="SHUTOFF", wait=60)

    shown = user.labctl("status", "--json")
    states = {host["name"]: host["state"] for host in shown.json["hosts"]}
    assert shown.code == 4
    assert states == {"broker-1": "gone", "broker-2": "failed", "broker-3": "stopped"}

    grown = user.labctl("provision", "--clients", "1", "--json")
    assert grown.code == 0, grown.stderr
    now = servers(control_plane, user)
    assert now.keys() == {"broker-1", "broker-2", "broker-3", "client-1"}
    assert {server.status for server in now.values()} == {"ACTIVE"}
    assert {name for name in was if now[name].id == was[name].id} == {"broker-3"}

    ended = user.labctl("destroy", "--json")
    assert ended.code == 0, ended.stderr
    kinds = sorted(each["kind"] for each in ended.json["deleted"])
    assert kinds == ["network", "security-group"] + ["server"] * 4 + ["server-group", "subnet"]
    assert ended.json["left"] == []
    assert inventory(control_plane) == before
    assert user.labctl("destroy", "--json").json["deleted"] == []


def test_floating_addresses_come_with_a_router_and_go_with_the_lab(
    user: User, control_plane: ControlPlane
) -> None:
    before = inventory(control_plane)
    bed = user.bed(f"reach: {{floating: {PUBLIC}}}", placement="any")
    made = user.labctl("provision", "--testbed", bed, "--brokers", "1", "--clients", "0", "--json")
    assert made.code == 0, made.stderr
    [host] = made.json["hosts"]
    assert host["address"].startswith("198.51.100.")
    assert host["inside"].startswith("10.77.")
    kept = inventory(control_plane)
    assert user.labctl("provision", "--json").code == 0
    assert inventory(control_plane) == kept
    assert user.labctl("destroy").code == 0
    assert inventory(control_plane) == before


def test_an_existing_network_is_used_and_stays(user: User, control_plane: ControlPlane) -> None:
    network: Any = control_plane.connect("stranger").network
    theirs = network.create_network(name="of-the-institute")
    network.create_subnet(network_id=theirs.id, ip_version=4, cidr="10.9.0.0/24")
    try:
        before = inventory(control_plane)
        bed = user.bed("network: of-the-institute")
        made = user.labctl("provision", "--testbed", bed, "--brokers", "1", "--clients", "0", "--json")
        assert made.code == 0, made.stderr
        assert made.json["hosts"][0]["inside"].startswith("10.9.0.")
        assert user.labctl("destroy").code == 0
        assert inventory(control_plane) == before
    finally:
        network.delete_network(theirs.id)


def test_a_lab_past_its_lifetime_is_collected_and_others_are_not(
    small: User, control_plane: ControlPlane
) -> None:
    before = inventory(control_plane)
    size = ("--lab", "old", "--brokers", "1", "--clients", "0")
    assert small.labctl("provision", "--testbed", small.bed(placement="any"), *size).code == 0
    assert small.labctl("gc", "--dry-run", "--json").json["labs"] == []
    small.let_expire("old")
    refused = small.labctl("provision", "--lab", "old", "--json")
    assert refused.code == 2
    assert "lifetime" in refused.stderr
    collected = small.labctl("gc", "--json")
    assert collected.code == 0, collected.stderr
    assert collected.json["labs"] == ["old"]
    assert inventory(control_plane) == before
