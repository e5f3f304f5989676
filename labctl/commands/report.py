"""`labctl report`: from the folder of a result to answers, figures and a page."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from labctl.commands.options import Json
from labctl.exits import CHECK_FAILED, DONE, OUTCOME_UNKNOWN, LabError, UsageProblem
from labctl.output import Output, is_terminal

if TYPE_CHECKING:
    from labctl.report.judgement.model import Report

NEEDS = "the report needs {}: install what it needs with pip install 'labctl[report]'"


class MissingPackage(LabError):
    """The extra `report` is not installed."""


def command(
    result: Annotated[
        str | None,
        typer.Argument(help="Folder of a result, or any path that Spark reads. Default: the newest."),
    ] = None,
    compare: Annotated[
        tuple[str, str] | None, typer.Option(help="Two results side by side instead.", metavar="A B")
    ] = None,
    output: Annotated[
        str | None, typer.Option(help="Where to write. Default: report/ in the folder of the result.")
    ] = None,
    claims: Annotated[
        Path | None, typer.Option(help="A claims file. Default: experiments/claims.yaml.")
    ] = None,
    master: Annotated[
        str, typer.Option(help="Spark master: local[2], spark://host:port, yarn ...")
    ] = "local[*]",
    json: Json = False,
) -> None:
    """Turn a result into tables, figures, a verdict on every claim, and one page that opens offline.

    Ends with 0 when all is well, with 1 when a check has failed or a claim does not hold, with 3 when a part
    of the result could not be read or checked. A claim that is inconclusive changes nothing.
    """
    out = Output(json)
    if compare is not None and result is not None:
        raise UsageProblem("give a result, or --compare A B, not both")
    try:
        if compare is not None:
            code = _compare(out, compare, claims, master)
        else:
            code = _report(out, result, output, claims, master)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("labctl", "broker", "client"):
            raise
        raise MissingPackage(NEEDS.format(error.name)) from None
    if code != DONE:
        raise typer.Exit(code)


def _report(
    out: Output, result: str | None, output: str | None, claims_file: Path | None, master: str
) -> int:
    from labctl.report import pipeline
    from labctl.report.judgement import claims
    from labctl.report.pages import outputs, terminal
    from labctl.report.tables import session
    from labctl.results import documents, layout, reading

    root = reading.find(result)
    target = output or documents.join(root, layout.REPORT)
    if documents.is_local(root):
        # Before Spark takes its time to start.
        reading.read_run(root)
    chosen = claims_file or claims.find(root if documents.is_local(root) else None)
    claims.load(chosen)
    with _progress(out, ("starting Spark", *pipeline.STEPS, "drawing")) as say:
        say("starting Spark")
        with session.start(master) as spark:
            report = pipeline.analyse(spark, _for_spark(root), _for_spark(target), chosen, say)
            say("drawing")
            document = outputs.write(report, target, spark)
    out.document(document)
    terminal.show(out, report)
    out.say(f"The page: {document['outputs']['html']}")
    return exit_code(report)


def _for_spark(path: str) -> str:
    """Spark's own default may be another file system than that of this machine."""
    from labctl.results import documents

    return str(Path(path).resolve()) if documents.is_local(path) else path


def _compare(out: Output, pair: tuple[str, str], claims_file: Path | None, master: str) -> int:
    from labctl.report import pipeline
    from labctl.report.judgement import claims, compare
    from labctl.report.pages import terminal
    from labctl.report.tables import session
    from labctl.results import documents, reading

    roots = [reading.find(each) for each in pair]
    for root in roots:
        if documents.is_local(root):
            reading.read_run(root)
    chosen = claims_file or claims.find()
    reports = []
    steps = ("starting Spark", *pipeline.STEPS, *pipeline.STEPS)
    with _progress(out, steps) as say, tempfile.TemporaryDirectory(prefix="labctl-compare-") as scratch:
        say("starting Spark")
        with session.start(master) as spark:
            for place, root in enumerate(roots):
                target = str(Path(scratch, str(place)))
                reports.append(pipeline.analyse(spark, _for_spark(root), target, chosen, say))
    a, b = reports
    differences = compare.compare(a, b)
    out.document(
        {
            "a": roots[0],
            "b": roots[1],
            "differences": differences,
            "only_in_a": compare.only_in(a, b),
            "only_in_b": compare.only_in(b, a),
            "invalid": [
                f"{name}: {c.id}"
                for name, r in (("A", a), ("B", b))
                for c in r.cells.values()
                if c.answer == "invalid"
            ],
        }
    )
    terminal.show_differences(out, differences, *roots)
    for name, report in (("A", a), ("B", b)):
        for cell in report.cells.values():
            if cell.answer == "invalid":
                out.say(f"warning: {name}: {cell.id} is invalid and not compared")
    return max(
        (exit_code(r, with_claims=False) for r in reports), key=(DONE, OUTCOME_UNKNOWN, CHECK_FAILED).index
    )


def exit_code(report: Report, with_claims: bool = True) -> int:
    """A broken promise or claim outweighs what is not known."""
    broken = any(cell.answer == "invalid" for cell in report.cells.values())
    if broken or (with_claims and any(j.verdict == "does not hold" for j in report.judgements)):
        return CHECK_FAILED
    if report.problems or any(cell.answer == "unknown" for cell in report.cells.values()):
        return OUTCOME_UNKNOWN
    return DONE


@contextlib.contextmanager
def _progress(out: Output, steps: tuple[str, ...]) -> Iterator[Callable[[str], None]]:
    """A bar on a terminal; a line for each step otherwise."""
    if not is_terminal(sys.stderr):
        yield lambda text: out.note(f"{text} ...")
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, TimeElapsedColumn(), console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task("", total=len(steps))
        begun = False

        def step(text: str) -> None:
            nonlocal begun
            bar.update(task, description=text, advance=1 if begun else 0)
            begun = True

        yield step
