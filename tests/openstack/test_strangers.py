"""What somebody else has made to look like a lab's own survives its destroy and its collection."""

from __future__ import annotations

from typing import Any

import pytest

from tests.openstack.control_plane import ControlPlane
from tests.openstack.labs import User, inventory
from tests.support.brokers import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DELETE_S = 120.0
Things = dict[str, Any]


def lab_things(plane: ControlPlane, tag: str) -> Things:
    network: Any = plane.connect("member").network
    compute: Any = plane.connect("member").compute
    [net], [subnet], [group] = (
        list(listing(tags=tag)) for listing in (network.networks, network.subnets, network.security_groups)
    )
    [server] = compute.servers(tags=tag)
    [together] = [each for each in compute.server_groups() if tag in each.name]
    return {"net": net, "subnet": subnet, "group": group, "server": server, "together": together}


def look_alikes(plane: ControlPlane, ours: Things) -> None:
    """By another user of the same project: the same names, tags, descriptions and metadata, all of them."""
    network: Any = plane.connect("stranger").network
    compute: Any = plane.connect("stranger").compute
    net = network.create_network(name=ours["net"].name, description=ours["net"].description)
    subnet = network.create_subnet(
        name=ours["subnet"].name,
        description=ours["subnet"].description,
        network_id=net.id,
        ip_version=4,
        cidr=ours["subnet"].cidr,
    )
    group = network.create_security_group(name=ours["group"].name, description=ours["group"].description)
    for theirs, original in ((net, ours["net"]), (subnet, ours["subnet"]), (group, ours["group"])):
        network.set_tags(theirs, original.tags)
    compute.create_server_group(name=ours["together"].name, policies=["soft-anti-affinity"])
    body = {
        "name": ours["server"].name,
        "imageRef": ours["server"].image.id,
        "flavorRef": next(f.id for f in compute.flavors() if f.name == "tiny"),
        "networks": [{"uuid": net.id}],
        "metadata": ours["server"].metadata,
        "tags": ours["server"].tags,
    }
    made = compute.post("/servers", json={"server": body}, microversion="2.52")
    assert made.status_code == 202, made.text


def remove(plane: ControlPlane, before: dict[str, set[str]]) -> None:
    network: Any = plane.connect("stranger").network
    compute: Any = plane.connect("stranger").compute
    extra = {
        kind: [thing.split()[-1] for thing in things - before.get(kind, set())]
        for kind, things in inventory(plane).items()
    }
    for server in extra.get("server", ()):
        compute.delete_server(server)
    # Nova lists a server for a moment longer than it answers for it.
    wait_for(
        "the servers to be gone",
        lambda: inventory(plane).get("server", set()) == before.get("server", set()),
        DELETE_S,
    )
    for group in extra.get("server-group", ()):
        compute.delete_server_group(group)
    for group in extra.get("security-group", ()):
        network.delete_security_group(group)
    for each in extra.get("network", ()):
        network.delete_network(each)


@pytest.mark.parametrize("command", ["destroy", "gc"])
def test_look_alikes_of_somebody_else_survive(user: User, control_plane: ControlPlane, command: str) -> None:
    empty = inventory(control_plane)
    # A machine that no hypervisor has room for is as much the lab's as one that runs, and sooner there.
    bed = user.bed("flavor: absurd")
    assert user.labctl("provision", "--testbed", bed, "--brokers", "1", "--clients", "0").code == 4
    tag = user.labctl("status", "--json").json["tag"]
    lab = inventory(control_plane)
    try:
        look_alikes(control_plane, lab_things(control_plane, tag))
        both = inventory(control_plane)
        if command == "gc":
            user.let_expire()
        ended = user.labctl(command, "--json")
        assert ended.code == 0, ended.stderr
        assert ended.json["left"] == []
        kinds = {"network", "subnet", "security-group", "server-group", "server"}
        assert {each["kind"] for each in ended.json["deleted"]} == kinds
        assert {each["kind"] for each in ended.json["untouched"]} == kinds
        left = inventory(control_plane)
        for kind in kinds:
            assert left[kind] == both[kind] - lab[kind] | empty.get(kind, set())
    finally:
        remove(control_plane, empty)
        user.labctl("destroy")
    assert inventory(control_plane) == empty


def test_a_thing_that_lost_the_labs_tag_is_not_touched_and_said_to_be_left(
    user: User, control_plane: ControlPlane
) -> None:
    """Recorded, but it does not say any more that it is the lab's."""
    before = inventory(control_plane)
    bed = user.bed("flavor: absurd", placement="any")
    assert user.labctl("provision", "--testbed", bed, "--brokers", "1", "--clients", "0").code == 4
    tag = user.labctl("status", "--json").json["tag"]
    network: Any = control_plane.connect("stranger").network
    [group] = network.security_groups(tags=tag)
    network.set_tags(group, [])
    network.update_security_group(group, description="taken over")
    ended = user.labctl("destroy", "--json")
    assert ended.code == 5
    assert [each["id"] for each in ended.json["left"]] == [group.id]
    assert network.find_security_group(group.id) is not None
    network.delete_security_group(group.id)
    assert user.labctl("destroy").code == 0
    assert inventory(control_plane) == before
