"""Many seeds, in chunks: run on several cores, recorded so that a campaign can be interrupted and resumed."""

from __future__ import annotations

import ast
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from time import process_time

import msgspec
from msgspec import Struct, field

from labctl.exits import UsageProblem
from labctl.host import whole_lines
from labctl.paths import PROJECT
from labctl.simulate.programs.programs import Program
from labctl.simulate.programs.variants import PLAIN, Variant, generate
from labctl.simulate.runner import SimRun
from labctl.simulate.search.novelty import Met, Novelty, known_marks
from labctl.simulate.search.shrink import shrink
from labctl.simulate.world import World
from labctl.workers import end_with_parent

CHUNK = 250
BROKEN = "internal error"
"""The property that a run violates which did not even come to an end."""
DECISIVE = (
    "broker/**/*.py", "client/**/*.py", "labctl/checks/**/*.py", "labctl/simulate/*.py",
    "labctl/simulate/crashes/*.py", "labctl/simulate/programs/*.py",
)  # fmt: skip
"""Whatever has an influence on what happens in a schedule, and on how it is judged."""


class Violation(Struct, frozen=True):
    seed: int
    property: str
    text: str


class Chunk(Struct, frozen=True):
    protocol: str
    scenario: str
    first: int
    count: int
    variant: Variant = PLAIN


class DoneChunk(Chunk, frozen=True, kw_only=True):
    """A chunk and what came of it: a line of the record."""

    messages: int
    violations: tuple[Violation, ...]
    seconds: float
    """Of processor time."""
    code: str = ""
    """Which state of the sources it was that was tried."""
    states: dict[str, int] = {}
    marks: dict[str, int] = {}
    """What its schedules have met, and which of them first, counted from 0; in a record, what is new there."""

    @property
    def chunk(self) -> Chunk:
        return Chunk(self.protocol, self.scenario, self.first, self.count, self.variant)


class Tally(Struct):
    """What came of several chunks."""

    protocol: str
    scenario: str
    schedules: int = 0
    messages: int = 0
    violations: list[dict[str, object]] = field(default_factory=list)
    seconds: float = 0.0
    """Of processor time, all processes together: so the rate below is that of one core."""
    novelty: Novelty = field(default_factory=Novelty)

    def add(self, done: DoneChunk) -> None:
        self.schedules += done.count
        self.messages += done.messages
        self.seconds += done.seconds
        self.novelty.add(done.count, done.states, done.marks)
        names = {"protocol": done.protocol, "scenario": done.scenario}
        self.violations += [{**msgspec.structs.asdict(v), **names} for v in done.violations]

    def document(self) -> dict[str, object]:
        rate = self.messages / self.seconds if self.seconds else 0.0
        fields, novelty = msgspec.structs.asdict(self), self.novelty
        del fields["novelty"]
        fields |= {"seconds": round(self.seconds, 3), "messages_per_s": round(rate)}
        if novelty.schedules:
            marks = {"met": sorted(novelty.marks), "never": sorted(known_marks() - novelty.marks)}
            fields |= {"states": len(novelty.states), "marks": marks, "nothing_new_since": novelty.quiet}
        return fields


def chunks(
    protocols: Sequence[str], scenarios: Sequence[str], first: int, end: int, variant: Variant = PLAIN
) -> list[Chunk]:
    """Cut at the same seeds whatever range is asked for, so that records of several campaigns add up."""
    edges = [first, *range((first // CHUNK + 1) * CHUNK, end, CHUNK), end]
    return [
        Chunk(protocol, scenario, low, high - low, variant)
        for low, high in pairwise(edges)
        for protocol in protocols
        for scenario in scenarios
    ]


def attempt(program: Program, traces: bool = False) -> tuple[World, list[tuple[str, str]]]:
    """Run a program; a defect that breaks the run itself is a violation like any other."""
    run = SimRun(program, traces)
    try:
        faults = run.execute().faults
    except Exception as error:  # noqa: BLE001 whatever it is, the seed must be told
        faults = [(BROKEN, f"{type(error).__name__}: {error}")]
    return run.world, faults


def run_chunk(chunk: Chunk) -> DoneChunk:
    began, messages = process_time(), 0
    violations: list[Violation] = []
    met = Met()
    for seed in range(chunk.first, chunk.first + chunk.count):
        world, faults = attempt(generate(chunk.scenario, chunk.protocol, seed, chunk.variant))
        messages += world.messages
        met.look(seed - chunk.first, world)
        violations += [Violation(seed, name, text) for name, text in faults]
    seconds = round(process_time() - began, 4)
    fields = msgspec.structs.asdict(chunk)
    return DoneChunk(
        **fields,
        messages=messages,
        violations=tuple(violations),
        seconds=seconds,
        states=met.states,
        marks=met.marks,
    )


def run(work: Sequence[Chunk], jobs: int, take: Callable[[DoneChunk], bool]) -> None:
    """Hand the results to `take` in the order of `work`, whatever the number of jobs, until it says stop."""
    if jobs <= 1 or len(work) <= 1:
        for chunk in work:
            if not take(run_chunk(chunk)):
                return
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(min(jobs, len(work)), _start_worker, (os.getpid(),)) as pool:
        for done in pool.imap(run_chunk, work):
            if not take(done):
                return


def _start_worker(parent: int) -> None:
    """Ctrl-C goes to all of a terminal's processes, and the first one decides; if that is killed, all end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    if os.getppid() != parent:  # it ended while we were starting
        os._exit(1)


def shrunk(program: Program, property_: str, seconds: float) -> Program:
    """A small program that violates the same property."""
    return shrink(program, lambda p: any(name == property_ for name, _ in attempt(p)[1]), seconds)


# The record


class CampaignFile:
    """A file with a line for each chunk that is done."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.code = fingerprint() if path is not None else ""
        self.known: dict[Chunk, DoneChunk] = {}
        self._novelty: dict[tuple[str, str], Novelty] = {}
        self.outdated = 0
        """Chunks that were done with other sources: they prove nothing about these."""
        for done in _read(path) if path is not None and path.exists() else ():
            if done.code == self.code:
                self.known[done.chunk] = done
                self._add(done)
            else:
                self.outdated += 1

    def _add(self, done: DoneChunk) -> DoneChunk:
        """Without what other chunks of the same protocol and scenario have met: or it would be said again and again."""
        novelty = self._novelty.setdefault((done.protocol, done.scenario), Novelty())
        states, marks = novelty.without(done.states), novelty.without(done.marks)
        novelty.add(done.count, states, marks)
        return msgspec.structs.replace(done, states=states, marks=marks)

    @contextmanager
    def writing(self) -> Iterator[Callable[[DoneChunk], None]]:
        if self._path is None:
            yield lambda done: None
            return
        try:
            file = self._path.open("a+b")
        except OSError as error:
            raise UsageProblem(f"cannot write the record {self._path}: {error.strerror}") from None
        with file:
            file.truncate(whole_lines.end(self._path.read_bytes()))

            def write(done: DoneChunk) -> None:
                line = msgspec.json.encode(msgspec.structs.replace(self._add(done), code=self.code))
                file.write(line + b"\n")
                file.flush()

            yield write


def _read(path: Path) -> Iterator[DoneChunk]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageProblem(f"cannot read the record {path}: {error.strerror}") from None
    for number, line in whole_lines.whole(data):  # a chunk that was cut off runs again
        try:
            yield msgspec.json.decode(line, type=DoneChunk)
        except msgspec.MsgspecError as error:
            raise UsageProblem(f"{path}, line {number}, is no chunk of a campaign: {error}") from None


@cache
def fingerprint() -> str:
    """Of all sources that decide about a schedule and its judgement; comments and layout do not count."""
    digest = sha256()
    for path in sorted(path for part in DECISIVE for path in PROJECT.glob(part)):
        digest.update(ast.dump(ast.parse(path.read_bytes())).encode())
    return digest.hexdigest()[:12]
