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

from labctl.commands import bench, check, doctor, hosts, labs, overlay, report, run, schema, simulate
from labctl.exits import DONE, INTERRUPTED, LabError
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
app.command("doctor", epilog="Example: labctl doctor --json | jq '.checks[] | select(.ok == false)'")(
    doctor.command
)
app.add_typer(overlay.app, name="overlay")
app.add_typer(bench.app, name="bench")
app.add_typer(simulate.app, name="simulate")
app.command("check", epilog="Example: labctl check results/latest --json")(check.check)
app.add_typer(run.app, name="run")
app.command("calibrate-wait", epilog="Example: labctl calibrate-wait --step 1ms --json")(run.calibrate_wait)
app.command("report", epilog="Example: labctl report results/base/latest --json | jq '.claims[]'")(
    report.command
)
app.command("schema", epilog=schema.EPILOG)(schema.command)
app.command(
    "provision",
    epilog="Example: labctl provision --testbed experiments/testbeds/openstack.yaml --brokers 3 --clients 4",
)(labs.provision)
app.command("status", epilog="Example: labctl status --json | jq '.hosts[] | .address'")(labs.status)
app.command("destroy", epilog="Example: labctl destroy --lab default --yes")(labs.destroy)
app.command("ssh", epilog="Example: labctl ssh broker-1 -- uptime")(hosts.ssh)
app.command("logs", epilog="Example: labctl logs broker-1 b1 --lines 50")(hosts.logs)
app.command("gc", epilog="Example: labctl gc --dry-run")(labs.gc)


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
