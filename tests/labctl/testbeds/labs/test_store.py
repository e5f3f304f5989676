"""A lab on disk: its hosts, keys and lock, and the journal that must survive a kill at any byte."""

from __future__ import annotations

import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from labctl.exits import LabError, UsageProblem
from labctl.testbeds.labs import keys, lab, store
from labctl.testbeds.labs.journal import Journal, JournalError
from labctl.testbeds.labs.lab import Lab
from labctl.testbeds.labs.store import Store, StoreError
from labctl.testbeds.testbed_file import resolve


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def small(name: str = "small", brokers: int = 1, clients: int = 1) -> Lab:
    return lab.sized(lab.new(name, resolve("openstack"), 1000.0), brokers, clients)


def test_a_lab_lives_as_long_as_its_testbed_says() -> None:
    assert small().expires_at_s == 1000.0 + 8 * 3600


def test_hosts_are_named_after_their_role() -> None:
    assert [host.name for host in small(brokers=2).hosts] == ["broker-1", "broker-2", "client-1"]


def test_growing_a_lab_keeps_the_hosts_it_has() -> None:
    first = small()
    grown = lab.sized(first, 3, 2)
    assert [host for host in grown.hosts if host in first.hosts] == list(first.hosts)
    assert len(grown.hosts) == 5


def test_a_lab_does_not_shrink() -> None:
    with pytest.raises(UsageProblem, match="takes none away"):
        lab.sized(small(brokers=3), 2, 1)


@pytest.mark.parametrize(
    ("machines", "wanted", "hosts"),
    [
        (1, (3, 4), (1, 0)),
        (1, (0, 4), (0, 1)),
        (2, (3, 4), (1, 1)),
        (2, (9, 1), (1, 1)),
        (4, (3, 4), (2, 2)),
        (4, (9, 4), (3, 1)),
        (5, (9, 0), (5, 0)),
        (7, (3, 4), (3, 4)),
        (9, (3, 4), (3, 4)),
    ],
)
def test_fewer_machines_are_divided_as_brokers_and_clients_are(
    machines: int, wanted: tuple[int, int], hosts: tuple[int, int]
) -> None:
    bed = structs.replace(resolve("openstack"), machines=machines)
    made = lab.sized(lab.new("l", bed, 0.0), *wanted)
    assert (len(made.of_role("broker")), len(made.of_role("client"))) == hosts


def test_hosts_that_are_there_keep_their_role_when_machines_are_divided_anew() -> None:
    bed = structs.replace(resolve("openstack"), machines=4)
    made = lab.sized(lab.sized(lab.new("l", bed, 0.0), 3, 4), 9, 1)
    assert [host.name for host in made.hosts] == ["broker-1", "broker-2", "client-1", "client-2"]


def test_a_lab_without_hosts_is_refused() -> None:
    with pytest.raises(UsageProblem, match="--brokers"):
        small(brokers=0, clients=0)


def test_asking_for_an_unknown_host_names_the_known_ones() -> None:
    with pytest.raises(UsageProblem, match="broker-1, client-1"):
        small().host("broker-2")


def test_a_lab_is_read_back_as_it_was_written() -> None:
    written = small().in_phase("incomplete")
    Store("small").write(written)
    assert Store("small").lab() == written
    assert store.names() == ["small"]


def test_a_lab_that_is_not_there_is_refused_with_those_that_are() -> None:
    Store("small").write(small())
    with pytest.raises(UsageProblem, match="there are small"):
        Store("smal").lab()


@pytest.mark.parametrize("name", ["", "../x", "a b", "x" * 33, "-x", "a_b"])
def test_a_name_that_would_not_fit_everywhere_is_refused(name: str) -> None:
    with pytest.raises(UsageProblem):
        Store(name)


def test_a_removed_lab_leaves_nothing() -> None:
    place = Store("small")
    place.write(place.make_keys(small()))
    place.remove()
    assert not place.folder.exists()
    place.remove()


def test_two_at_once_on_one_lab_are_kept_apart() -> None:
    with Store("small").locked():
        with pytest.raises(StoreError, match="another labctl"), Store("small").locked():
            pass
        with Store("other").locked():
            pass
    with Store("small").locked():
        pass


def test_every_host_gets_a_key_of_its_own_that_stays() -> None:
    place = Store("small")
    made = place.make_keys(small())
    assert len({host.host_key for host in made.hosts}) == 2
    assert place.make_keys(small()).hosts == made.hosts
    assert place.public_key().startswith("ssh-ed25519 ")


def test_private_keys_can_be_read_by_their_owner_only() -> None:
    place = Store("small")
    place.make_keys(small())
    for path in (place.key_file, place.host_key_file("broker-1")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.folder.stat().st_mode) == 0o700


def test_openssh_takes_our_keys_for_its_own(require: Callable[[str], str]) -> None:
    program = require("ssh-keygen")
    place = Store("small")
    made = place.make_keys(small())
    done = subprocess.run(
        [program, "-y", "-f", place.host_key_file("broker-1")], capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[:2] == made.host("broker-1").host_key.split()


def test_known_hosts_has_every_host_with_an_address() -> None:
    first, second = Store("small").make_keys(small()).hosts
    hosts = (structs.replace(first, address="10.0.0.5", port=2222), second)
    text = keys.known_hosts(structs.replace(small(), hosts=hosts))
    assert text == f"[10.0.0.5]:2222 {first.host_key}\n"


def journal(folder: Path) -> Journal:
    return Journal(folder / "journal.jsonl")


def test_an_intent_is_on_disk_before_anything_else_happens(tmp_path: Path) -> None:
    intent = journal(tmp_path).intend("network", "n1")
    assert journal(tmp_path).may_exist() == [intent]


def test_what_came_of_an_intent_is_remembered(tmp_path: Path) -> None:
    book = journal(tmp_path)
    made, refused, gone = (book.intend("server", f"s{number}", f"h{number}") for number in range(3))
    book.made(made, "id-1")
    book.refused(refused, "quota")
    book.gone(book.made(gone, "id-3"))
    again = {entry.name: (entry.state, entry.id, entry.host) for entry in journal(tmp_path).entries()}
    assert again == {"s0": ("made", "id-1", "h0"), "s1": ("refused", "", "h1"), "s2": ("gone", "id-3", "h2")}
    assert [entry.name for entry in journal(tmp_path).may_exist()] == ["s0"]


def test_a_journal_cut_at_any_byte_keeps_all_whole_lines_and_takes_new_ones(tmp_path: Path) -> None:
    book = journal(tmp_path)
    book.made(book.intend("network", "n1"), "id-1")
    book.intend("subnet", "n2")
    path = tmp_path / "journal.jsonl"
    content = path.read_bytes()
    whole_after = [position + 1 for position, byte in enumerate(content) if byte == ord("\n")]
    for length in range(len(content)):
        path.write_bytes(content[:length])
        lines = sum(1 for end in whole_after if end <= length)
        cut = journal(tmp_path)
        assert len(cut.entries()) == min(lines, 1) + (lines == 3)
        added = cut.intend("port", "later")
        assert journal(tmp_path).entries()[-1] == added


def test_marks_are_never_the_same(tmp_path: Path) -> None:
    book = journal(tmp_path)
    assert len({book.intend("server", "same").mark for _ in range(50)}) == 50


def test_a_journal_damaged_in_the_middle_stops_everything(tmp_path: Path) -> None:
    book = journal(tmp_path)
    book.intend("network", "n1")
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"{}\n" + path.read_bytes())
    with pytest.raises(JournalError, match="line 1 is damaged"):
        journal(tmp_path)


def test_nothing_is_intended_where_the_journal_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="nothing is created without it"):
        journal(tmp_path / "missing").intend("network", "n1")
