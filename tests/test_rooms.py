"""The rooms of the house: how large they are, what their maps say, who may import whom, where their tests are.

`tests.support.rooms` and `tests.support.finding` read the sources and find the faults; here they are asked for, and
each kind is planted once in a small house of its own, to show that it would be found.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from labctl.paths import PROJECT
from tests.support import finding, rooms
from tests.support.rooms import House, read_house
from tests.support.subjects import SUBJECTS, TESTED_BY

HOUSE = read_house(PROJECT)

TWINS = {
    "Bundle": "what playbooks ask of a bundle, and the bundle: playbooks import nothing of ours",
    "Channel": "a channel over any pipe, and the same one over a stream of asyncio",
    "Decision": "what the gate asks of a decision of the core, and the decision: the gate does not know the core",
    "Operation": "one thing: as brokers send it to each other, and as a history tells of it",
    "Peer": "a peer over any pipe, and the same one over a stream of asyncio",
    "Ready": "what the gate asks of what a core has ready, and that: the gate does not know the core",
    "Transaction": "one thing: as its coordinator has it in hand, and as a history tells of it",
}
"""Classes that share a name because they are the same thing, seen from two rooms."""


def sentences(faults: list[str]) -> str:
    return "\n\n".join(["", *faults])


def test_all_rooms_are_looked_at() -> None:
    assert {
        "broker",
        "broker.matching",
        "client.core",
        "labctl.report.pages",
        "playbooks",
    } <= HOUSE.rooms.keys()
    assert HOUSE.rooms["broker.protocol"] >= {"wire", "filters"}


def test_a_room_has_at_most_twelve_modules() -> None:
    assert not (faults := rooms.too_large(HOUSE)), sentences(faults)


def test_the_map_of_a_room_names_its_modules() -> None:
    assert not (faults := rooms.wrong_maps(HOUSE)), sentences(faults)


def test_a_room_imports_what_it_says_and_nothing_else() -> None:
    assert not (faults := rooms.wrong_permissions(HOUSE)), sentences(faults)


def test_rooms_have_no_cycle() -> None:
    assert not (faults := rooms.cycles(HOUSE)), sentences(faults)


def test_nobody_imports_an_entry_point() -> None:
    assert not (faults := rooms.imported_entry_points(HOUSE)), sentences(faults)


def test_modules_that_are_named_as_text_exist() -> None:
    files = [PROJECT / "Makefile", *PROJECT.glob("*.md"), *PROJECT.glob("docs/*.md")]
    files += [file for file in PROJECT.glob("tests/**/*.py") if file.name != Path(__file__).name]
    texts = {str(file.relative_to(PROJECT)): file.read_text("utf-8") for file in files}
    assert not (faults := rooms.lost_names(HOUSE, texts)), sentences(faults)


def test_the_name_of_a_class_stands_for_one_class() -> None:
    assert not (faults := rooms.ambiguous(HOUSE, TWINS)), sentences(faults)


def test_tests_are_where_their_subject_is() -> None:
    assert not (faults := finding.astray(HOUSE, PROJECT / "tests", SUBJECTS)), sentences(faults)


def test_every_module_has_a_test_that_can_be_found() -> None:
    assert not (faults := finding.untested(HOUSE, PROJECT / "tests", TESTED_BY)), sentences(faults)


# --------------------------------------------------------------------------------------------------
# Planted faults.

MATCHING = '"""Look-ups.\n\n    index.py    finds records\n\nMay import: nothing of ours.\n"""\n'
SERVING = '"""Sockets.\n\n    server.py   serves\n\nMay import: broker.matching.\n"""\n'
SOUND = {
    "broker/matching/__init__.py": MATCHING,
    "broker/matching/index.py": "import os\n",
    "broker/serving/__init__.py": SERVING,
    "broker/serving/server.py": "from broker.matching.index import Index\n",
}


def house(root: Path, changed: Mapping[str, str] | None = None) -> House:
    """The small house, with some of its files changed or added."""
    for name, text in (SOUND | dict(changed or {})).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return read_house(root)


def faults_of(built: House) -> list[str]:
    checks = (
        rooms.too_large,
        rooms.wrong_maps,
        rooms.wrong_permissions,
        rooms.cycles,
        rooms.imported_entry_points,
        lambda built: rooms.lost_names(built, {}),
    )
    return [fault for check in checks for fault in check(built)]


def test_a_sound_house_has_no_fault(tmp_path: Path) -> None:
    assert faults_of(house(tmp_path)) == []


def test_a_thirteenth_module_is_found(tmp_path: Path) -> None:
    names = [f"m{i}" for i in range(rooms.MODULES_MAX)]
    lines = "".join(f"    {name}.py    one\n" for name in names)
    init = MATCHING.replace("    index.py", f"{lines}    index.py")
    built = house(
        tmp_path,
        {"broker/matching/__init__.py": init} | {f"broker/matching/{name}.py": "" for name in names},
    )
    assert [fault.split(":")[0] for fault in faults_of(built)] == [
        "broker.matching has 13 modules, and a room has at most 12"
    ]


def test_a_missing_and_an_outdated_line_of_a_map_are_found(tmp_path: Path) -> None:
    built = house(
        tmp_path,
        {"broker/matching/table.py": "", "broker/serving/__init__.py": SERVING.replace("server", "peer")},
    )
    assert [fault.split(":")[0] for fault in faults_of(built)] == [
        "broker/matching/__init__.py has no line `    table.py    what it is for`",
        "broker/serving/__init__.py has no line `    server.py    what it is for`",
        "broker/serving/__init__.py names peer.py, which is not in this room",
    ]


def test_a_room_in_a_map_that_is_not_there_is_found(tmp_path: Path) -> None:
    init = MATCHING.replace("    index.py", "    boxes/      ranges\n    index.py")
    assert faults_of(house(tmp_path, {"broker/matching/__init__.py": init})) == [
        "broker/matching/__init__.py names boxes/, and there is no such room: remove the line"
    ]


def test_a_room_that_is_missing_in_the_map_above_it_is_found(tmp_path: Path) -> None:
    below = '"""Ranges.\n\n    range.py   one\n\nMay import: nothing of ours.\n"""\n'
    built = house(
        tmp_path, {"broker/matching/boxes/__init__.py": below, "broker/matching/boxes/range.py": ""}
    )
    assert faults_of(built) == [
        "broker/matching/__init__.py has no line `    boxes/    what it is for`: add it to the map"
    ]


FORBIDDEN = (
    "broker/matching/__init__.py: broker/matching/index.py:{line} imports client.core.verbs. "
    "Take the import out, or end the docstring with:\nMay import: client.core."
)
CLIENT = {
    "client/core/__init__.py": '"""Words.\n\n    verbs.py   verbs\n\nMay import: nothing of ours.\n"""\n',
    "client/core/verbs.py": "",
}


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("from client.core.verbs import subscribe", 1),
        ("from client.core import verbs", 1),
        ("import client.core.verbs as v", 1),
        ("def f():\n    import client.core.verbs", 2),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from client.core.verbs import Verbs", 3),
        ("from ...client.core.verbs import Verbs", 1),
        ('NAMED = {"verbs": "client.core.verbs"}', 1),
    ],
)
def test_a_forbidden_import_is_found_wherever_it_stands(tmp_path: Path, source: str, line: int) -> None:
    assert faults_of(house(tmp_path, {"broker/matching/index.py": source} | CLIENT)) == [
        FORBIDDEN.format(line=line)
    ]


def test_an_unused_permission_and_a_missing_one_are_found(tmp_path: Path) -> None:
    unused = MATCHING.replace("nothing of ours", "client.core,\nbroker.protocol")
    missing = SERVING.replace("May import: broker.matching.", "")
    built = house(tmp_path, {"broker/matching/__init__.py": unused, "broker/serving/__init__.py": missing})
    assert [
        fault.split(". Take the import out, or end the docstring with:\n") for fault in faults_of(built)
    ] == [
        [
            "broker/matching/__init__.py: no module of broker.matching imports broker.protocol; no module of broker.matching imports client.core",
            "May import: nothing of ours.",
        ],
        [
            "broker/serving/__init__.py: broker/serving/server.py:1 imports broker.matching.index; it has no such line",
            "May import: broker.matching.",
        ],
    ]


def test_a_cycle_by_a_type_only_import_is_found(tmp_path: Path) -> None:
    source = (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from broker.serving.server import Server\n"
    )
    permitted = MATCHING.replace("nothing of ours", "broker.serving")
    built = house(tmp_path, {"broker/matching/index.py": source, "broker/matching/__init__.py": permitted})
    (fault,) = faults_of(built)
    assert fault.startswith(
        "broker.matching -> broker.serving -> broker.matching is a cycle of rooms "
        "(broker/matching/index.py:3 imports broker.serving.server; "
        "broker/serving/server.py:1 imports broker.matching.index)"
    )


def test_a_cycle_by_a_module_that_is_imported_by_its_name_is_found(tmp_path: Path) -> None:
    permitted = MATCHING.replace("nothing of ours", "broker.serving")
    for source in ('SERVERS = {"plain": "broker.serving.server"}', 'OWN = "broker.serving."'):
        changed = {"broker/matching/index.py": source, "broker/matching/__init__.py": permitted}
        (fault,) = faults_of(house(tmp_path, changed))
        assert fault.startswith("broker.matching -> broker.serving -> broker.matching is a cycle of rooms")


def test_a_module_that_is_run_is_not_imported(tmp_path: Path) -> None:
    source = 'COMMAND = ["python", "-m", "broker.serving.server"]'
    assert faults_of(house(tmp_path, {"broker/matching/index.py": source})) == []


def test_an_entry_point_may_import_all_and_be_imported_by_nobody(tmp_path: Path) -> None:
    serving = SERVING.replace("    server", "    __main__.py  runs\n    server")
    built = house(
        tmp_path,
        {
            "broker/serving/__init__.py": serving,
            "broker/serving/__main__.py": "import broker.serving.server\n",
            "broker/serving/server.py": "import broker.matching.index\n",
        },
    )
    assert faults_of(built) == []
    built = house(
        tmp_path,
        {
            "broker/serving/server.py": "import broker.matching.index\nfrom broker.serving.__main__ import main\n",
        },
    )
    assert [fault.split(":")[1] for fault in rooms.imported_entry_points(built)] == [
        "2 imports broker.serving.__main__, an entry point"
    ]
    assert [fault.split(" is ")[0] for fault in rooms.cycles(built)] == [
        "broker.serving -> broker.serving.__main__ -> broker.serving"
    ]


def test_two_classes_of_one_name_are_found_and_so_is_an_outdated_twin(tmp_path: Path) -> None:
    built = house(
        tmp_path,
        {
            "broker/matching/index.py": "class Record: pass\nclass Hole: pass\nclass _Own: pass\n",
            "broker/serving/server.py": "import broker.matching.index\ndef f():\n    class Record: pass\nclass _Own: pass\n",
        },
    )
    (fault,) = rooms.ambiguous(built, {})
    assert fault.startswith(
        "Record is the name of several classes (broker/matching/index.py:1, broker/serving/server.py:3)"
    )
    assert rooms.ambiguous(built, {"Record": "a reason", "Hole": "a reason"}) == [
        "TWINS has Hole, and no two classes have that name"
    ]


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        (
            'PROVIDERS = {"x": "broker.matching.gone"}',
            "names broker.matching.gone, and there is no such module",
        ),
        ('OWN = "broker.gone."', "names broker.gone, and there is no such module"),
        ('C = ["python", "-m", "broker.gone"]', "runs `-m broker.gone`, and there is no module broker.gone"),
        (
            'C = ("-m", "broker.matching")',
            "runs `-m broker.matching`, and there is no module broker.matching.__main__",
        ),
        ('C = f"{1} -m client.gone stop"', "runs `-m client.gone`, and there is no module client.gone"),
    ],
)
def test_a_module_that_is_only_a_word_is_missed(tmp_path: Path, source: str, fault: str) -> None:
    built = house(tmp_path, {"broker/matching/index.py": source})
    assert f"broker/matching/index.py:1 {fault}" in rooms.lost_names(built, {})


def test_commands_and_paths_in_other_texts_are_read_too(tmp_path: Path) -> None:
    texts = {
        "Makefile": "python -m broker.serving.server\npython -m broker.gone x\n",
        "README.md": "see `broker/matching/`, `broker/matching/index.py` and `broker/matching/table.py`",
    }
    assert rooms.lost_names(house(tmp_path), texts) == [
        "Makefile runs `-m broker.gone`, and there is no module broker.gone",
        "README.md names broker/matching/table.py, which is not there",
    ]


def test_imports_of_programs_that_are_only_text_are_read_too(tmp_path: Path) -> None:
    program = "PROGRAM = (\nfrom broker.matching import index, gone\n"
    program += "import broker.lost.index\nfrom broker.serving.server import Server\n)"
    assert rooms.lost_names(house(tmp_path), {"tests/x.py": program}) == [
        "tests/x.py imports broker.matching.gone, which is not there",
        "tests/x.py imports broker.lost.index, which is not there",
    ]


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("broker/matching/test_index.py", ""),
        ("broker/matching/test_index_cost.py", ""),
        ("broker/matching/test_matching.py", ""),
        ("broker/test_serving.py", ""),
        ("broker/matching/test_indexes.py", "is named after no module of broker.matching"),
        ("broker/matching/test_server.py", "is named after no module of broker.matching"),
        ("broker/gone/test_index.py", "mirrors no room"),
    ],
)
def test_a_test_that_has_no_subject_is_found(tmp_path: Path, name: str, fault: str) -> None:
    built = house(tmp_path, {"broker/config.py": ""})
    test = tmp_path / "tests" / name
    test.parent.mkdir(parents=True)
    test.touch()
    faults = finding.astray(built, tmp_path / "tests", {})
    assert len(faults) == bool(fault)
    assert all(f.startswith(f"tests/{name} {fault}") for f in faults)


def test_the_test_of_a_module_has_its_name_or_imports_it_or_stands_in_the_table(tmp_path: Path) -> None:
    tests = {
        "broker/matching/test_index_cost.py": "",
        "broker/test_all.py": "from broker.matching import table",
        "client/test_other.py": "import broker.matching.holes",
    }
    for name, text in tests.items():
        (tmp_path / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tests" / name).write_text(text)
    modules = {f"broker/matching/{name}.py": "" for name in ("table", "holes")}
    built = house(tmp_path, modules)

    def untested(table: dict[str, dict[str, str]]) -> list[str]:
        return [fault.split(":")[0] for fault in finding.untested(built, tmp_path / "tests", table)]

    holes, server = (
        "no test of broker/matching/holes.py is found",
        "no test of broker/serving/server.py is found",
    )
    assert untested({}) == [holes, server]
    assert untested({"broker.serving": {"broker/test_all.py": "server"}}) == [holes]
    assert untested(
        {
            "broker.matching": {"client/test_other.py": "holes index", "broker/test_gone.py": "lost"},
            "broker.serving": {"broker/test_all.py": "server"},
        }
    ) == [
        "TESTED_BY has broker.matching.index, whose test is found without it",
        "TESTED_BY has broker.matching.lost, and there is no such module",
        "TESTED_BY has tests/broker/test_gone.py, and there is no such test",
    ]


def test_the_table_of_subjects_is_kept_short(tmp_path: Path) -> None:
    for name in ("test_index.py", "test_all.py"):
        (tmp_path / "tests/broker/matching").mkdir(parents=True, exist_ok=True)
        (tmp_path / "tests/broker/matching" / name).touch()
    subjects = {f"broker/matching/{name}.py": "a reason" for name in ("test_index", "test_all", "test_gone")}
    assert finding.astray(house(tmp_path), tmp_path / "tests", subjects) == [
        "tests/broker/matching/test_index.py is named after its subject: it need not stand in SUBJECTS",
        "SUBJECTS has broker/matching/test_gone.py, and there is no such test",
    ]
