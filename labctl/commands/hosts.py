"""`labctl ssh` and `labctl logs`: a look at the hosts of a lab."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Annotated

import typer

from labctl.commands.options import DEFAULT_NAME, DryRun, LabName
from labctl.exits import LabError
from labctl.output import Output
from labctl.testbeds.labs.store import Store


class NoSsh(LabError):
    """There is no program to log in with."""


def _complete_host(ctx: typer.Context) -> list[str]:
    found = Store(ctx.params.get("lab") or DEFAULT_NAME).find()
    return [host.name for host in found.hosts] if found else []


HostName = Annotated[str, typer.Argument(help="Of the lab, as broker-1.", autocompletion=_complete_host)]


def ssh(
    host: HostName,
    command: Annotated[list[str] | None, typer.Argument(help="Instead of a shell; behind --.")] = None,
    lab: LabName = DEFAULT_NAME,
    dry_run: DryRun = False,
) -> None:
    """Log in to a host of a lab, or run a command there; its key is checked as strictly as labctl does it.

    Ends with what ssh ends with: the command's own exit code, or 255 when the host cannot be reached.
    """
    from labctl.testbeds.ssh.connections import words_of
    from playbooks.steps import shell

    store = Store(lab)
    known = store.lab()
    words = [*words_of(store, known, known.host(host)), *(["--", *command] if command else [])]
    if dry_run:
        Output().say(shell(words))
        return
    sys.stdout.flush()
    try:
        if sys.stdin.isatty():
            os.execvp(words[0], words)
        raise typer.Exit(subprocess.run(words, check=False).returncode)
    except FileNotFoundError:
        raise NoSsh("ssh is not installed on this machine; Debian: apt-get install openssh-client") from None


def logs(
    host: HostName,
    process: Annotated[str, typer.Argument(help="As b1 or E; left out: which there are.")] = "",
    lines: Annotated[int, typer.Option("--lines", min=1, help="From the end.")] = 100,
    lab: LabName = DEFAULT_NAME,
) -> None:
    """Show the log of a process of the repetition that is on a host now.

    When a repetition is over, its logs are brought into the result folder, below nodes/; what failed with
    --keep-on-failure stays on the hosts as well.
    """
    from labctl.testbeds.ssh.connections import Connections
    from labctl.testbeds.ssh.play import Player, target
    from playbooks import collect

    store = Store(lab)
    known = store.lab()
    there = known.host(host)
    with Connections(store, known) as connections:
        text = Player(connections).on(there, collect.logs(target(known, there), process, lines))
    Output().say(
        text.rstrip("\n") or f"{host} has no logs now; those of finished repetitions are in the results"
    )
