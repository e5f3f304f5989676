"""Where is the test of a module, and what is a test about? By name; what is wrong with that, each fault a sentence.

`python -m tests.support.finding broker/routing/prt.py` says where the test of a module is.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.support.rooms import PACKAGES, House, imports_of, is_entry_point, read_house
from tests.support.subjects import TESTED_BY


def astray(house: House, tests: Path, subjects: Mapping[str, str]) -> list[str]:
    """Tests that cannot be found by the name of what they test.

    A test is called after a module of the room that its folder mirrors, after the room, or after a room directly
    below; or it stands in `subjects`, with the reason, because its subject is none of these.
    """
    faults = []
    files = {
        str(f.relative_to(tests)): f
        for package in PACKAGES
        for f in sorted((tests / package).rglob("test_*.py"))
    }
    for name, file in files.items():
        room = ".".join(file.relative_to(tests).parent.parts)
        if room not in house.rooms:
            faults.append(
                f"tests/{name} mirrors no room: {room} is not there; move it to where its subject is"
            )
        elif _is_named_after(file.stem.removeprefix("test_"), house, room) == (name in subjects):
            faults.append(
                f"tests/{name} is named after its subject: it need not stand in SUBJECTS"
                if name in subjects
                else f"tests/{name} is named after no module of {room} (test_MODULE.py, test_MODULE_*.py): rename it, "
                "or say in SUBJECTS what its subject is"
            )
    return faults + [
        f"SUBJECTS has {name}, and there is no such test" for name in subjects if name not in files
    ]


def tests_of(module: str, house: House, tests: Path) -> list[Path]:
    """By name alone: in the folder that mirrors its room, those named after it; else those that import it, there or
    in a folder above.
    """
    room, _, name = module.rpartition(".")
    folder = tests / room.replace(".", "/")
    if named := [f for f in _tests_in(folder) if re.match(rf"test_{name}(?:_|$)", f.stem)]:
        return named
    above = [tests / "/".join(room.split(".")[:length]) for length in range(room.count(".") + 1, 0, -1)]
    return [f for each in above for f in _tests_in(each) if module in _imported_by(f, house)]


def _tests_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("test_*.py"))


@cache
def _imported_by(test: Path, house: House) -> frozenset[str]:
    tree = ast.parse(test.read_text("utf-8"))
    return frozenset(found.target for found in imports_of("", {**house.files, "": test}, tree))


def untested(house: House, tests: Path, tested_by: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Modules whose test cannot be found; `tested_by`: by room and test, modules that it is about, between blanks.

    An entry point is tested by the processes that run it.
    """
    told = {
        f"{room}.{name}": test
        for room, table in tested_by.items()
        for test, names in table.items()
        for name in names.split()
    }
    modules = [f"{room}.{name}" for room in sorted(house.rooms) for name in sorted(house.rooms[room])]
    faults = []
    for module in (m for m in modules if not is_entry_point(m)):
        found = tests_of(module, house, tests)
        if found and module in told:
            faults.append(
                f"TESTED_BY has {module}, whose test is found without it: {found[0].relative_to(tests)}"
            )
        elif not found and module not in told:
            faults.append(
                f"no test of {house.path(module)} is found: write tests/{'/test_'.join(module.replace('.', '/').rsplit('/', 1))}.py, "
                f"or say in TESTED_BY which test is about it"
            )
    faults += [
        f"TESTED_BY has {name}, and there is no such module" for name in sorted(told.keys() - set(modules))
    ]
    gone = sorted({test for test in told.values() if not (tests / test).is_file()})
    return faults + [f"TESTED_BY has tests/{test}, and there is no such test" for test in gone]


def _is_named_after(name: str, house: House, room: str) -> bool:
    below = {r.rpartition(".")[2] for r in house.rooms if r.rpartition(".")[0] == room}
    subjects = house.rooms[room] | below | {room.rpartition(".")[2]}
    return any(name == subject or name.startswith(f"{subject}_") for subject in subjects)


def main(paths: list[str]) -> int:
    root = Path(__file__).parents[2]
    house = read_house(root)
    for path in paths:
        room, _, name = (module := path.removesuffix(".py").replace("/", ".")).rpartition(".")
        if module not in house.files:
            sys.stderr.write(f"{path}: there is no such module\n")
            return 2
        by_hand = [
            root / "tests" / test for test, names in TESTED_BY.get(room, {}).items() if name in names.split()
        ]
        for test in tests_of(module, house, root / "tests") or by_hand:
            sys.stdout.write(f"{test.relative_to(root)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
