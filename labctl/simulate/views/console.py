"""What the commands of `labctl simulate` do and print, a function for each; True: nothing was violated."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from time import monotonic, process_time
from typing import Any

import msgspec

from labctl.checks.verdict import lines_of
from labctl.output import Output, is_terminal
from labctl.simulate.programs.programs import Program
from labctl.simulate.programs.variants import Variant, generate
from labctl.simulate.search import explore as exploring
from labctl.simulate.search import measure as measuring
from labctl.simulate.search.campaign import (
    CampaignFile,
    Chunk,
    DoneChunk,
    Tally,
    attempt,
    chunks,
    run,
    shrunk,
)
from labctl.simulate.search.measure import Measured
from labctl.simulate.search.novelty import known_marks
from labctl.simulate.search.requests import Campaign, Exploration, LongRun, Measurement, Replay
from labctl.simulate.search.soak import Soak, Soaked
from labctl.simulate.views.describe import outline
from labctl.simulate.views.diagram import diagram
from labctl.simulate.world import World

FAILURES_MAX = 10
"""So many failing schedules say enough."""
REPORT_S = 5.0


# Random schedules


def campaign(out: Output, plan: Campaign) -> bool:
    work = chunks(plan.choice.protocols, plan.choice.scenarios, plan.first, plan.end, plan.variant)
    record = CampaignFile(plan.record)
    if record.outdated:
        out.note(f"{record.outdated} chunks in {plan.record} are of other sources: they run again")
    counts = Counts(plan, work)
    interrupted = False
    for chunk in work:
        if chunk in record.known:
            counts.take(record.known[chunk])
    left = [chunk for chunk in work if chunk not in record.known]
    began = monotonic()
    with out.working(f"simulating {len(work)} chunks of schedules") as report, record.writing() as write:
        reporter = Reporter(report)

        def take(done: DoneChunk) -> bool:
            write(done)
            counts.take(done)
            reporter.say(counts.progress)
            return plan.keeps_going or len(counts.failed) < FAILURES_MAX

        try:
            run(left, plan.jobs, take)
        except KeyboardInterrupt:
            interrupted = True
    _show_campaign(out, counts, monotonic() - began, interrupted)
    if interrupted:
        raise KeyboardInterrupt
    if counts.failed:
        _show_failure(out, plan, counts.total.violations[0])
    return not counts.failed


class Reporter:
    """Says how far it is, not too often."""

    def __init__(self, report: Callable[[str], object]) -> None:
        self._report = report
        self._every_s = 0.2 if is_terminal(sys.stderr) else REPORT_S
        self._last = monotonic()

    def say(self, text: Callable[[], str]) -> None:
        if monotonic() - self._last >= self._every_s:
            self._last = monotonic()
            self._report(text())


class Counts:
    """What came of a campaign so far: in all, and for each protocol and scenario."""

    def __init__(self, plan: Campaign, work: Sequence[Chunk]) -> None:
        choice = plan.choice
        self._schedules = sum(chunk.count for chunk in work)
        self.total = Tally(choice.protocol, choice.scenario)
        self.parts = {(p, s): Tally(p, s) for p in choice.protocols for s in choice.scenarios}
        self.failed: set[tuple[str, str, int]] = set()

    def take(self, done: DoneChunk) -> None:
        self.total.add(done)
        self.parts[done.protocol, done.scenario].add(done)
        self.failed |= {(done.protocol, done.scenario, violation.seed) for violation in done.violations}

    def progress(self) -> str:
        total = self.total
        return f"{total.schedules:,} of {self._schedules:,} schedules, {len(self.failed)} failed"


def _show_campaign(out: Output, counts: Counts, elapsed_s: float, interrupted: bool) -> None:
    parts = [part for part in counts.parts.values() if part.schedules]
    out.document(
        counts.total.document()
        | {"elapsed_s": round(elapsed_s, 3), "interrupted": interrupted}
        | {"parts": [part.document() for part in parts]}
    )
    rows = []
    for part in (*parts, counts.total) if len(parts) > 1 else parts:
        rate = part.messages / part.seconds if part.seconds else 0.0
        rows.append(
            (part.protocol, part.scenario, part.schedules, part.messages, len(part.violations), round(rate))
        )
    columns = ("protocol", "scenario", "schedules", "messages", "violations", "messages/s")
    title = "Schedules, with messages per second of a core"
    out.table(title + (", as far as it came" if interrupted else ""), columns, rows)
    _show_novelty(out, [*parts, counts.total] if len(parts) > 1 else parts)


def _show_novelty(out: Output, parts: Sequence[Tally]) -> None:
    known = len(known_marks())
    rows = [
        (
            part.protocol, part.scenario, len(part.novelty.states),
            f"{len(part.novelty.marks)} of {known}", part.novelty.quiet,
        )
        for part in parts
    ]  # fmt: skip
    columns = ("protocol", "scenario", "states", "rare places", "nothing new since")
    out.table("How different they were: what they met, and for how many not more", columns, rows)


def _show_failure(out: Output, plan: Campaign, violation: dict[str, Any]) -> None:
    protocol, scenario, seed = violation["protocol"], violation["scenario"], violation["seed"]
    say_all(out, ["", *lines_of(f"{violation['property']} is violated", violation["text"])])
    out.say(
        f"again: labctl simulate replay {seed} --protocol {protocol} --scenario {scenario}{_flags(plan.variant)}"
    )
    program = generate(scenario, protocol, seed, plan.variant)
    with out.working("making the program smaller"):
        small = shrunk(program, violation["property"], plan.shrink_s)
    world, faults = attempt(small, traces=True)
    out.say("\nA smaller program that shows it:")
    say_all(out, [*outline(small), "", *diagram(world, small), "", *_sentences(faults)])


def _flags(variant: Variant) -> str:
    """The options that make this variant."""
    default = Variant()
    changed = {n: v for n, v in msgspec.structs.asdict(variant).items() if v != getattr(default, n)}
    steady = " --steady" if not changed.pop("swarm", True) else ""
    return "".join(f" --{name.replace('_', '-')} {value}" for name, value in changed.items()) + steady


def _sentences(faults: Sequence[tuple[str, str]]) -> list[str]:
    return [line for name, text in faults for line in lines_of(name, text)] or ["no violation"]


def say_all(out: Output, lines: Sequence[str]) -> None:
    for line in lines:
        out.say(line)


# One schedule


def replay(out: Output, request: Replay) -> bool:
    program = generate(request.scenario, request.protocol, request.seed, request.variant)
    began = process_time()
    world, faults = attempt(program, traces=True)
    seconds = process_time() - began
    head, *steps = diagram(world, program)
    tally = Tally(request.protocol, request.scenario, 1, world.messages, seconds=seconds)
    tally.violations = [{"seed": request.seed, "property": name, "text": text} for name, text in faults]
    out.document(tally.document() | {"program": list(outline(program)), "steps": steps})
    if not out.json:
        say_all(out, [*outline(program), "", head])
        step_through(out, steps)
        say_all(out, ["", *_sentences(faults)])
    return not faults


def step_through(out: Output, steps: Sequence[str]) -> None:
    waits = is_terminal(sys.stdout) and sys.stdin.isatty()
    if waits:
        out.note("Enter: one step; a number and Enter: so many; Ctrl-D: all the rest")
    ahead = 0
    for step in steps:
        if waits and ahead <= 0:
            answer = sys.stdin.readline()
            waits = bool(answer)
            ahead = int(answer) if answer.strip().isdecimal() else 1
        ahead -= 1
        out.say(step)


# Small worlds, whole


def explore(out: Output, request: Exploration) -> bool:
    began = monotonic()
    found: list[exploring.Explored] = []
    failure: tuple[Program, World] | None = None
    with out.working("exploring small worlds") as report:
        reporter = Reporter(report)
        for name, protocol, program in exploring.small_programs(request.protocols):
            one, search = exploring.explore(name, protocol, program, request.limit)
            found.append(one)
            reporter.say(lambda: f"{len(found)} small worlds, {sum(e.states for e in found):,} states")
            if search.faults and failure is None:
                failure = program, exploring.shown(program, search.failing).world
    violations = [{**v, "program": e.name, "protocol": e.protocol} for e in found for v in e.violations]
    seconds = round(monotonic() - began, 3)
    out.document({"explored": found, "limit": request.limit, "violations": violations, "seconds": seconds})
    if not out.json:
        columns = (
            "protocol",
            "program",
            "brokers",
            "runs",
            "states",
            "ends",
            "schedules",
            "all of them",
            "violations",
        )
        rows = [
            (
                e.protocol,
                e.name,
                e.brokers,
                e.runs,
                e.states,
                e.ends,
                e.schedules,
                e.complete,
                len(e.violations),
            )
            for e in found
        ]
        out.table("Small worlds", columns, rows)
    if failure is not None:
        program, world = failure
        told = lines_of(str(violations[0]["property"]), str(violations[0]["text"]))
        say_all(out, [*told, *outline(program), ""])
        say_all(out, diagram(world, program))
    return not violations


# Virtual time


def measure(out: Output, request: Measurement) -> bool:
    found: list[Measured] = []
    with out.working("measuring in virtual time") as report:
        reporter = Reporter(report)
        for one in measuring.measure(request.protocols, request.sizes, request.delays):
            found.append(one)
            reporter.say(lambda: f"{found[-1].protocol} on {found[-1].brokers} brokers")
    out.document({"delays": request.delays, "measured": found})
    if not out.json:
        columns = ("brokers", "placement", "protocol", "messages", "crossings", "p50 ms", "max ms")
        rows = [
            (m.brokers, m.placement, m.protocol, m.messages, m.crossings, m.p50_ms, m.max_ms) for m in found
        ]
        out.table("One dispatching transaction, in virtual time", columns, rows)
    return True


# A world that lives long


def soak(out: Output, request: LongRun) -> bool:
    began = monotonic()
    transactions, brokers = request.transactions, request.brokers
    with out.working(f"{transactions:,} transactions in one world of {brokers} brokers") as report:
        reporter = Reporter(report)

        def tell(so_far: Soaked) -> None:
            reporter.say(lambda: f"{so_far.transactions:,} transactions, {so_far.committed:,} committed")

        result = Soak(brokers, request.protocols).run(transactions, tell)
    fields = msgspec.structs.asdict(result) | {"seconds": round(monotonic() - began, 3)}
    out.document(fields)
    if not out.json:
        faults = fields.pop("faults")
        out.table("What is left of them", tuple(fields), [tuple(fields.values())])
        say_all(out, faults or ["nothing but what they committed"])
    return not result.faults
