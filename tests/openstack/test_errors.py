"""What goes wrong in a real cloud is said in a sentence, with what to do next, and never with a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.openstack.control_plane import ControlPlane
from tests.openstack.labs import Done, User, inventory
from tests.openstack.seed import IMAGE, PROJECT
from tests.openstack.services import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ONE = ("--brokers", "1", "--clients", "0")
TWO = ("--brokers", "1", "--clients", "1")


def said(done: Done, code: int = 4) -> str:
    assert done.code == code, (done.code, done.stderr)
    assert "Traceback" not in done.stderr
    [sentence] = [line for line in done.stderr.splitlines() if line.startswith("labctl: ")]
    return sentence


def refusal(user: User, more: str = "", cloud: str = "member", size: tuple[str, ...] = ONE) -> str:
    bed = user.bed(more, cloud=cloud, placement="any")
    return said(user.labctl("provision", "--testbed", bed, *size, "--json"))


@pytest.fixture
def unchanged(control_plane: ControlPlane) -> Iterator[None]:
    before = inventory(control_plane)
    yield
    assert inventory(control_plane) == before


@pytest.mark.usefixtures("unchanged")
class TestNothingIsCreatedWhen:
    def test_the_password_is_wrong(self, user: User) -> None:
        sentence = refusal(user, cloud="wrong-password")
        assert "does not let member in: wrong user name, password or project; check clouds.yaml" in sentence
        assert "guessed" not in sentence

    def test_the_cloud_is_unknown(self, user: User) -> None:
        assert "clouds.yaml has no cloud 'membre'; it has admin, member" in refusal(user, cloud="membre")

    def test_the_cloud_does_not_answer(self, user: User, control_plane: ControlPlane) -> None:
        [closed] = free_ports(1)
        moved = user.home / "clouds.yaml"
        port = control_plane.places.ports["identity"]
        moved.write_text(control_plane.clouds_file.read_text().replace(f":{port}/", f":{closed}/"))
        user.clouds = moved
        assert f"the cloud member does not answer at http://127.0.0.1:{closed}" in refusal(user)

    def test_the_image_is_missing(self, user: User) -> None:
        assert f"there is no image 'debian-21'; there is {IMAGE}" in refusal(user, "image: debian-21")

    def test_the_image_is_ambiguous(self, user: User, control_plane: ControlPlane) -> None:
        image: Any = control_plane.connect("stranger").image
        form = {"disk_format": "raw", "container_format": "bare", "wait": True, "timeout": 60}
        twins = [image.create_image("twin", data=bytes(9), allow_duplicates=True, **form) for _ in range(2)]
        try:
            sentence = refusal(user, "image: twin")
            assert "the image 'twin' is ambiguous: name one by its id" in sentence
            assert all(twin.id in sentence for twin in twins)
        finally:
            for twin in twins:
                image.delete_image(twin)

    def test_the_flavor_is_missing(self, user: User) -> None:
        assert "there is no flavor 'papre'; did you mean 'paper'?" in refusal(user, "flavor: papre")

    def test_no_flavor_is_large_enough(self, user: User) -> None:
        sentence = refusal(user, "flavor: {vcpus: 9, memory_gb: 4}")
        assert "no flavor has 9 vCPU, 4 GB of memory" in sentence
        assert "the largest are absurd" in sentence

    def test_the_network_is_missing(self, user: User) -> None:
        assert "there is no network 'privat'" in refusal(user, "network: privat")

    def test_the_quota_is_too_small(self, user: User, control_plane: ControlPlane) -> None:
        with quota(control_plane, cores=3):
            sentence = refusal(user, size=TWO)
            assert "quota exceeded, nothing was created: cores: 4 needed, 3 left" in sentence
            dry = user.labctl("provision", "--testbed", user.bed(), *TWO, "--dry-run", "--json")
            assert "cores: 4 needed, 3 left" in said(dry)
            assert dry.json["ok"] is False
            assert dry.json["quota"]["cores"] == {"need": 4, "left": 3}


@contextmanager
def quota(plane: ControlPlane, **limits: int) -> Iterator[None]:
    admin = plane.connect("admin")
    before = admin.get_compute_quotas(PROJECT)
    admin.set_compute_quotas(PROJECT, **limits)
    try:
        yield
    finally:
        admin.set_compute_quotas(PROJECT, **{name: before[name] for name in limits})


def test_one_of_two_hosts_finds_no_room_and_the_other_is_kept_or_deleted_as_wished(
    user: User, control_plane: ControlPlane
) -> None:
    before = inventory(control_plane)
    bed = user.bed("flavor: half", placement="any")
    kept = user.labctl("provision", "--testbed", bed, *TWO, "--json")
    sentence = said(kept)
    assert "1 of 2 hosts could not be had" in sentence
    assert "No valid host was found" in sentence
    assert "take a smaller one" in sentence
    assert sorted(host["state"] for host in kept.json["hosts"]) == ["failed", "ready"]
    assert user.labctl("status").code == 4
    # What fails before anything is created is no reason to delete what is there.
    with quota(control_plane, instances=2):
        assert "quota exceeded" in said(user.labctl("provision", "--clients", "2", "--on-failure", "delete"))
    assert user.state()["phase"] == "incomplete"
    deleted = user.labctl("provision", "--on-failure", "delete", "--json")
    assert deleted.code == 4
    assert "No valid host was found" in deleted.stderr
    assert "Traceback" not in deleted.stderr
    assert inventory(control_plane) == before
    assert not (user.home / "labctl" / "labs" / "default").exists()


def test_ssh_that_never_comes_up_is_reported_with_the_consoles_last_lines(
    user: User, control_plane: ControlPlane
) -> None:
    before = inventory(control_plane)
    bed = user.bed(placement="any")
    # Nothing runs at the addresses that the cloud gives out here; the hypervisor has a console all the same.
    text = (
        bed.read_text()
        .replace("ready: active", "ready: ssh")
        .replace("poll_s", "boot_s: 0.1, connect_s: 0.5, poll_s")
    )
    bed.write_text(text)
    sentence = said(user.labctl("provision", "--testbed", bed, *ONE))
    assert "broker-1: SSH never came up at 10.77." in sentence
    assert "its console says last: FAKE CONSOLE OUTPUT | ANOTHER | LAST LINE" in sentence
    assert user.labctl("destroy").code == 0
    assert inventory(control_plane) == before


def test_what_cannot_be_deleted_is_listed_with_code_5_and_can_be_tried_again(
    user: User, control_plane: ControlPlane
) -> None:
    before = inventory(control_plane)
    bed = user.bed("flavor: absurd", placement="any", conflict_s=2)
    assert "the server is in ERROR: No valid host" in said(user.labctl("provision", "--testbed", bed, *ONE))
    theirs: Any = control_plane.connect("stranger").network
    tag = user.labctl("status", "--json").json["tag"]
    [network] = theirs.networks(tags=tag)
    port = theirs.create_port(network_id=network.id, name="somebody-elses")
    ended = user.labctl("destroy", "--json")
    sentence = said(ended, code=5)
    assert "something may be left of the lab default" in sentence
    left = {each["kind"] for each in ended.json["left"]}
    assert left == {"network", "subnet"}
    assert {each["kind"] for each in ended.json["deleted"]} == {"server", "security-group"}
    assert "half removed" in said(user.labctl("provision", "--testbed", bed, *ONE), code=2)
    assert theirs.find_port(port.id) is not None
    theirs.delete_port(port.id)
    assert user.labctl("destroy").code == 0
    assert inventory(control_plane) == before


def test_a_destroy_that_cannot_log_in_ends_with_code_5_and_names_what_may_be_left(
    user: User, control_plane: ControlPlane
) -> None:
    before = inventory(control_plane)
    bed = user.bed("flavor: absurd", placement="any")
    assert user.labctl("provision", "--testbed", bed, *ONE).code == 4
    right, user.clouds = user.clouds, user.home / "clouds.yaml"
    user.clouds.write_text(right.read_text().replace("member-password", "changed"))
    sentence = said(user.labctl("destroy"), code=5)
    assert "does not let member in" in sentence
    assert "This may be left in the cloud: network labctl-default (" in sentence
    user.clouds = right
    assert user.labctl("destroy").code == 0
    assert inventory(control_plane) == before


def test_doctor_says_what_a_testbed_lacks(user: User) -> None:
    good = user.labctl("doctor", "--testbed", user.bed(), "--json")
    assert good.code == 0, good.stderr
    names = {check["name"] for check in good.json["checks"]}
    assert {"credentials", "compute service", "quota", "TLS between brokers"} <= names
    bad = user.labctl("doctor", "--testbed", user.bed("image: debian-21"), "--json")
    assert bad.code == 4
    [check] = [check for check in bad.json["checks"] if check["required"] and not check["ok"]]
    assert "there is no image 'debian-21'" in check["detail"]
    assert check["advice"]
    locked_out = user.labctl("doctor", "--testbed", user.bed(cloud="wrong-password"), "--json")
    assert locked_out.code == 4
    assert locked_out.json["checks"][0]["name"] == "credentials"
