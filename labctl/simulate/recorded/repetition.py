"""A repetition of a real run, replayed: which one is meant, and what came of all its brokers and their links."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from labctl.exits import UsageProblem
from labctl.results import layout, provenance
from labctl.results.histories import Result
from labctl.results.reading import find, read_run
from labctl.simulate.recorded import links, nodes, schedule
from labctl.simulate.recorded.links import Altered, LinkReplay
from labctl.simulate.recorded.nodes import Deviation, Late, Replayed
from labctl.simulate.recorded.reading import Recording
from labctl.simulate.recorded.smaller import Case


class ReplayedRepetition(Struct, frozen=True):
    nodes: tuple[Replayed, ...]
    links: tuple[LinkReplay, ...]

    @property
    def differences(self) -> list[Deviation | Late | Altered]:
        """The first of each node, the earliest first, and then of each link: those may follow from the nodes'."""
        at_nodes = [node.difference for node in self.nodes if node.difference is not None]
        on_links = [link.altered for link in self.links if link.altered is not None]
        return [
            *sorted(at_nodes, key=lambda one: one.line.time),
            *sorted(on_links, key=lambda one: one.line.time),
        ]

    @property
    def compared(self) -> int:
        """Messages at both their ends, and what was told."""
        return sum(n.messages + n.told for n in self.nodes) + sum(link.messages for link in self.links)


def replay(recordings: list[Recording]) -> ReplayedRepetition:
    replayed = [nodes.replay(recording) for recording in recordings]
    return ReplayedRepetition(tuple(replayed), tuple(links.compare(recordings)))


def case(recordings: list[Recording], result: Result) -> Case | None:
    """All of it as one overlay, where each broker lived once; of a run that was reproduced."""
    if len({recording.node for recording in recordings}) < len(recordings):
        return None
    clients = tuple(file for file in result.files if file.role == "client")
    return Case(schedule.merge(recordings), clients)


def is_of_other_code(folder: Path) -> bool:
    """Whether a repetition of a result was run by another code of the broker than is here."""
    for root in folder.resolve().parents[2:3]:  # cells, the cell, the repetition
        if (root / layout.RUN).exists():
            return bool(read_run(str(root))["code"].get("broker") != provenance.code()["broker"])
    return False


def which(result: Path, cell: str = "", number: int = 0) -> Path:
    """The folder of a repetition: of a result, by its cell and number where it has several; or the folder itself."""
    folder = Path(find(str(result)))
    there = layout.finished(folder)
    if not there:
        if cell or number:
            raise UsageProblem(f"{folder} has no finished repetitions: leave out --cell and --repetition")
        return folder
    cells = sorted({one.cell for one in there})
    if not cell and len(cells) > 1:
        raise UsageProblem(f"{folder} has several cells: give --cell, one of {', '.join(cells)}")
    cell = cell or cells[0]
    if cell not in cells:
        raise UsageProblem(f"{folder} has no cell {cell!r}; choose from {', '.join(cells)}")
    numbers = [one.number for one in there if one.cell == cell]
    number = number or numbers[0]
    if number not in numbers:
        raise UsageProblem(
            f"{folder} has no repetition {number} of {cell}; choose from {', '.join(map(str, numbers))}"
        )
    return folder / layout.repetition(cell, number)
