"""The `labctl` command: its groups, and the one place where an error becomes an exit code.

Commands are thin: they turn options into typed values, call a function, and print what it returns.
"""

from __future__ import annotations

import importlib.metadata
import signal
import sys
from types import FrameType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from labctl import (
    bench_cli,
    check_cli,
    doctor,
    lab_cli,
    overlay_cli,
    report_cli,
    run_cli,
    simulate_cli,
    testbed_cli,
)
from labctl.exits import DONE, INFRASTRUCTURE, INTERRUPTED, LabError
from labctl.output import Output, print_error


class Commands(TyperGroup):
    """Expected errors end in one sentence and their exit code, never in a traceback."""

    # Typed loosely: typer carries its own copy of click since 0.16, and click's types before that.
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except LabError as error:
            print_error(error)
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            print_error("interrupted")
            raise typer.Exit(INTERRUPTED) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Boxes and colours are for people; a log file gets plain lines.
    rich_markup_mode="rich" if sys.stdout.isatty() else None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A lab in a command: experiments on distributed publish/subscribe messaging.",
    epilog="Begin with: labctl doctor, then labctl overlay up --brokers 3",
)
app.add_typer(overlay_cli.app, name="overlay")
app.add_typer(bench_cli.app, name="bench")
app.command("simulate", epilog=simulate_cli.EPILOG)(simulate_cli.simulate)
app.command("check", epilog="Example: labctl check results/latest --json")(check_cli.check)
app.add_typer(run_cli.app, name="run")
app.command("calibrate-wait", epilog="Example: labctl calibrate-wait --step 1ms --json")(
    run_cli.calibrate_wait
)
app.command("report", epilog="Example: labctl report results/base/latest --json | jq '.claims[]'")(
    report_cli.command
)
app.command(
    "provision",
    epilog="Example: labctl provision --testbed experiments/testbeds/openstack.yaml --brokers 3 --clients 4",
)(testbed_cli.provision)
app.command("status", epilog="Example: labctl status --json | jq '.hosts[] | .address'")(testbed_cli.status)
app.command("destroy", epilog="Example: labctl destroy --lab default --yes")(testbed_cli.destroy)
app.command("ssh", epilog="Example: labctl ssh broker-1 -- uptime")(lab_cli.ssh)
app.command("logs", epilog="Example: labctl logs broker-1 b1 --lines 50")(lab_cli.logs)
app.command("gc", epilog="Example: labctl gc --dry-run")(testbed_cli.gc)


def _print_version(wanted: bool) -> None:
    if wanted:
        Output().say(f"labctl {importlib.metadata.version('labctl')}")
        raise typer.Exit(DONE)


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A lab in a command: experiments on distributed publish/subscribe messaging."""


@app.command("doctor", epilog="Example: labctl doctor --json | jq '.checks[] | select(.ok == false)'")
def run_doctor(
    testbed: Annotated[
        str | None, typer.Option(help="Check this testbed instead: its file, or its kind.")
    ] = None,
    brokers: Annotated[int, typer.Option(min=0, help="Hosts for brokers that the testbed must hold.")] = 3,
    clients: Annotated[int, typer.Option(min=0, help="Hosts for clients that it must hold.")] = 4,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Check whether this machine, or a testbed, is fit for a lab, and say what to do where it is not.

    Ends with 0 when every required check is well, and with 4 otherwise; optional checks only advise.
    """
    out = Output(json)
    if testbed is None:
        title, checks = "This machine", doctor.examine()
    else:
        title, checks = testbed_cli.examine(testbed, brokers, clients)
    ok = doctor.all_required_ok(checks)
    out.document({"ok": ok, "checks": checks})
    if not json:
        rows = [(_verdict(check), check.name, check.detail, check.advice) for check in checks]
        out.table(title, ("verdict", "check", "found", "advice"), rows)
    if not ok:
        raise typer.Exit(INFRASTRUCTURE)


def _verdict(check: doctor.Check) -> str:
    if check.ok:
        return "ok"
    return "not ok" if check.required else "advice"


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as for what a shell runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Not a KeyboardInterrupt raised here: inside an event loop SIGINT has a handler that ends it in order.
    signal.raise_signal(signal.SIGINT)


def main() -> None:
    # Whoever ends us politely gets the same cleaning up as Ctrl-C; nohup is respected.
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _interrupt)
    app(prog_name="labctl")
