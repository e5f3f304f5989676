"""`labctl doctor`: is this machine, or a testbed, fit for a lab?"""

from __future__ import annotations

from typing import Annotated

import typer

from labctl.checkup import Check
from labctl.commands.labs import examine
from labctl.commands.options import Json
from labctl.exits import INFRASTRUCTURE
from labctl.output import Output
from labctl.overlay import doctor


def command(
    testbed: Annotated[
        str | None, typer.Option(help="Check this testbed instead: its file, or its kind.")
    ] = None,
    brokers: Annotated[int, typer.Option(min=0, help="Hosts for brokers that the testbed must hold.")] = 3,
    clients: Annotated[int, typer.Option(min=0, help="Hosts for clients that it must hold.")] = 4,
    json: Json = False,
) -> None:
    """Check whether this machine, or a testbed, is fit for a lab, and say what to do where it is not.

    Ends with 0 when every required check is well, and with 4 otherwise; optional checks only advise.
    """
    out = Output(json)
    if testbed is None:
        title, checks = "This machine", doctor.examine()
    else:
        title, checks = examine(testbed, brokers, clients)
    ok = doctor.all_required_ok(checks)
    out.document({"ok": ok, "checks": checks})
    if not json:
        rows = [(_verdict(check), check.name, check.detail, check.advice) for check in checks]
        out.table(title, ("verdict", "check", "found", "advice"), rows)
    if not ok:
        raise typer.Exit(INFRASTRUCTURE)


def _verdict(check: Check) -> str:
    if check.ok:
        return "ok"
    return "not ok" if check.required else "advice"
