"""The rooms of our packages, as the sources show them, and what is wrong with them; each fault a sentence.

A room is a folder with modules. What a room imports is read from the syntax of its modules, wherever an import
stands: at the top, inside a function, or for types only; a module or room that is named as text is imported by
its name, unless a command has it behind `-m`, which starts a process of its own. Entry points (`__main__`, `labctl.cli`, ...) stand on
top of everything, each a room of its own that nobody may import.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("broker", "client", "labctl", "playbooks")
ENTRY_POINTS = frozenset({"labctl.cli", "labctl.demo"})
MODULES_MAX = 12

_MAP_LINE = re.compile(r"^    (\w+)(\.py|/) {2,}\S", re.MULTILINE)
_PERMISSION = re.compile(r"^May import: ([^:]+)\.\s*\Z", re.MULTILINE)
_NOTHING = "nothing of ours"
_OURS = "|".join(PACKAGES)
_DOTTED = re.compile(rf"(?:{_OURS})(?:\.\w+)+\.?")
_PATH = re.compile(rf"`((?:{_OURS}|tests)/[\w/]*(?:\.py|/))`")
_IMPORT = re.compile(
    rf"^ *(?:from ((?:{_OURS})(?:\.\w+)*) import ([\w, ]+)|import ((?:{_OURS})(?:\.\w+)+))", re.MULTILINE
)
_RUN = re.compile(rf"-m ((?:{_OURS})(?:\.\w+)*)\b")


class Import(NamedTuple):
    source: str
    line: int
    target: str


@dataclass(frozen=True, eq=False)
class House:
    """Our packages below a folder; a room and its `__init__.py` have the same name."""

    root: Path
    files: Mapping[str, Path]
    trees: Mapping[str, ast.Module]
    rooms: Mapping[str, frozenset[str]]
    """The modules of each room, without `__init__`."""
    imports: tuple[Import, ...]

    def room(self, module: str) -> str:
        return module if module in self.rooms or is_entry_point(module) else module.rpartition(".")[0]

    def links(self) -> dict[str, dict[str, Import]]:
        """Which rooms a room imports, each with the first import that does."""
        links: dict[str, dict[str, Import]] = defaultdict(dict)
        for found in self.imports:
            source, target = self.room(found.source), self.room(found.target)
            if source != target:
                links[source].setdefault(target, found)
        return links

    def at(self, found: Import) -> str:
        return f"{self.path(found.source)}:{found.line} imports {found.target}"

    def path(self, module: str) -> str:
        return str(self.files[module].relative_to(self.root))

    def init(self, room: str) -> str:
        return f"{room.replace('.', '/')}/__init__.py"

    def docstring(self, room: str) -> str:
        """As it stands: to clean it would move the map to the left where nothing else is there."""
        return ast.get_docstring(self.trees[room], clean=False) or "" if room in self.trees else ""


def is_entry_point(module: str) -> bool:
    return module in ENTRY_POINTS or module.endswith(".__main__")


def read_house(root: Path) -> House:
    sources = [f for package in PACKAGES for f in sorted((root / package).rglob("*.py"))]
    files = {_dotted(f.relative_to(root)): f for f in sources}
    trees = {name: ast.parse(f.read_text("utf-8")) for name, f in files.items()}
    rooms: dict[str, set[str]] = defaultdict(set)
    for f in sources:
        inside = rooms[".".join(f.relative_to(root).parent.parts)]
        if f.name != "__init__.py":
            inside.add(f.stem)
    imports = sorted(found for name in files for found in imports_of(name, files, trees[name]))
    return House(root, files, trees, {n: frozenset(m) for n, m in rooms.items()}, tuple(imports))


def _dotted(path: Path) -> str:
    return ".".join(path.parent.parts if path.name == "__init__.py" else path.with_suffix("").parts)


def imports_of(name: str, files: Mapping[str, Path], tree: ast.Module) -> Iterator[Import]:
    run = {id(word) for node in ast.walk(tree) for word in _run_by(node)}
    for node in ast.walk(tree):
        targets: list[str] = []
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if _DOTTED.fullmatch(node.value) and id(node) not in run:
                targets = [node.value.rstrip(".")]
        elif isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = name.split(".") if files[name].name == "__init__.py" else name.split(".")[:-1]
            parts = above[: len(above) - node.level + 1] if node.level else []
            base = ".".join([*parts, *([node.module] if node.module else [])])
            targets = [f"{base}.{alias.name}" for alias in node.names]
        for target in targets:
            # `from a.b import c`: the module a.b.c, or the name c in a.b.
            module = target if target in files else target.rpartition(".")[0]
            if module in files:
                yield Import(name, node.lineno, module)  # type: ignore[attr-defined]


def too_large(house: House) -> list[str]:
    return [
        f"{room} has {len(modules)} modules, and a room has at most {MODULES_MAX}: move those that belong together "
        "into a room below it"
        for room, modules in sorted(house.rooms.items())
        if len(modules) > MODULES_MAX
    ]


def wrong_maps(house: House) -> list[str]:
    """Each room's docstring names exactly its modules and the rooms directly below it."""
    faults = []
    for room, modules in sorted(house.rooms.items()):
        lines = _MAP_LINE.findall(house.docstring(room))
        mapped = {name for name, kind in lines if kind == ".py"}
        below = {name for name, kind in lines if kind == "/"}
        for name in sorted(modules - mapped):
            faults.append(
                f"{house.init(room)} has no line `    {name}.py    what it is for`: add it to the map"
            )
        for name in sorted(mapped - modules):
            faults.append(f"{house.init(room)} names {name}.py, which is not in this room: remove the line")
        there = {name.rpartition(".")[2] for name in house.rooms if name.rpartition(".")[0] == room}
        for name in sorted(there - below):
            faults.append(
                f"{house.init(room)} has no line `    {name}/    what it is for`: add it to the map"
            )
        for name in sorted(below - there):
            faults.append(f"{house.init(room)} names {name}/, and there is no such room: remove the line")
    return faults


def wrong_permissions(house: House) -> list[str]:
    """What a room imports is what its last line permits, no more and no less."""
    faults = []
    links = house.links()
    for room in sorted(house.rooms):
        used = {target: found for target, found in links.get(room, {}).items() if not is_entry_point(target)}
        written = _PERMISSION.search(house.docstring(room))
        permitted = _rooms_of(written[1]) if written else set()
        reasons = [house.at(used[target]) for target in sorted(used.keys() - permitted)]
        reasons += [f"no module of {room} imports {name}" for name in sorted(permitted - used.keys())]
        reasons += [] if written else ["it has no such line"]
        if reasons:
            line = textwrap.fill(f"May import: {', '.join(sorted(used)) or _NOTHING}.", 110)
            faults.append(
                f"{house.init(room)}: {'; '.join(reasons)}. Take the import out, or end the docstring with:\n{line}"
            )
    return faults


def _rooms_of(text: str) -> set[str]:
    return set() if text == _NOTHING else set(re.split(r",\s+", text))


def imported_entry_points(house: House) -> list[str]:
    return [
        f"{house.at(found)}, an entry point: move what both need into a module that may be imported"
        for found in house.imports
        if is_entry_point(found.target)
    ]


def cycles(house: House) -> list[str]:
    """The shortest cycle through each room that is in one, each cycle once."""
    links = house.links()
    shortest = {
        frozenset(way): way for room in sorted(links, reverse=True) if (way := _way_back(room, links))
    }
    faults = []
    for way in shortest.values():
        steps = [house.at(links[a][b]) for a, b in zip(way, [*way[1:], way[0]], strict=True)]
        faults.append(
            f"{' -> '.join([*way, way[0]])} is a cycle of rooms ({'; '.join(steps)}): move what both need into the "
            "lower room, or hand it over as an argument"
        )
    return faults


def _way_back(start: str, links: Mapping[str, Collection[str]]) -> list[str] | None:
    ways = deque([[start]])
    seen = set()
    while ways:
        way = ways.popleft()
        for room in sorted(links.get(way[-1], ())):
            if room == start:
                return way
            if room not in seen:
                seen.add(room)
                ways.append([*way, room])
    return None


def ambiguous(house: House, twins: Mapping[str, str]) -> list[str]:
    """Names of classes that stand for more than one class; `twins` are those that may, each with the reason.

    One that begins with an underscore is a matter of its module alone.
    """
    places: dict[str, list[str]] = defaultdict(list)
    for module, tree in house.trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{house.path(module)}:{node.lineno}")
    shared = {name: found for name, found in sorted(places.items()) if len(found) > 1}
    faults = [
        f"{name} is the name of several classes ({', '.join(found)}): a word has one meaning, so give all but one of "
        "them a name of their own"
        for name, found in shared.items()
        if name not in twins
    ]
    return faults + [
        f"TWINS has {name}, and no two classes have that name" for name in twins if name not in shared
    ]


def lost_names(house: House, texts: Mapping[str, str]) -> list[str]:
    """Modules that are named as text and are not there: in catalogues, and behind `-m` in commands.

    `texts` are other files, by name: the commands in them, the paths of modules and folders, and what their lines
    import, those of programs that are written down as text included.
    """
    faults = []
    for module, tree in house.trees.items():
        for node in ast.walk(tree):
            where = f"{house.path(module)}:{getattr(node, 'lineno', 0)}"
            for name in _commands_in(node):
                faults += _not_runnable(house, where, name)
            faults += [f"{where} names {name}, and there is no such module" for name in _lost_in(node, house)]
    for where, text in texts.items():
        for name in _RUN.findall(text):
            faults += _not_runnable(house, where, name)
        for found in _IMPORT.findall(text):
            faults += [f"{where} imports {name}, which is not there" for name in _lost_imports(house, *found)]
        for path in _PATH.findall(text):
            faults += [] if (house.root / path).exists() else [f"{where} names {path}, which is not there"]
    return faults


def _lost_in(node: ast.AST, house: House) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and _DOTTED.fullmatch(node.value):
        name = node.value.rstrip(".")
        if name not in house.files:
            yield name


def _lost_imports(house: House, package: str, names: str, module: str) -> Iterator[str]:
    if module or package not in house.rooms:
        if (module or package) not in house.files:
            yield module or package
        return
    own = house.files[package].read_text("utf-8") if package in house.files else ""
    for name in re.findall(r"\w+", names.partition(" as ")[0]):
        inside = f"{package}.{name}"
        if inside not in house.rooms and inside not in house.files and not re.search(rf"\b{name}\b", own):
            yield inside


def _commands_in(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from _RUN.findall(node.value)
    for word in _run_by(node):
        if isinstance(word.value, str) and word.value.partition(".")[0] in PACKAGES:
            yield word.value


def _run_by(node: ast.AST) -> Iterator[ast.Constant]:
    """The words behind `-m` in a command that is a list of words."""
    words = node.elts if isinstance(node, ast.List | ast.Tuple) else []
    for option, word in pairwise(words):
        if isinstance(option, ast.Constant) and option.value == "-m" and isinstance(word, ast.Constant):
            yield word


def _not_runnable(house: House, where: str, name: str) -> list[str]:
    module = f"{name}.__main__" if name in house.rooms else name
    return [] if module in house.files else [f"{where} runs `-m {name}`, and there is no module {module}"]
