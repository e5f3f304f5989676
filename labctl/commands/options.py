"""Options that several commands share, each declared once: a name means the same wherever it is typed."""

from __future__ import annotations

from typing import Annotated

import typer

DEFAULT_NAME = "default"
"""Of a lab, and of an overlay, where none is named."""


def _complete_lab() -> list[str]:
    from labctl.testbeds.labs import store

    return store.names()


def _complete_overlay() -> list[str]:
    from labctl.overlay import state

    return state.names()


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, all else on stderr.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]

LabName = Annotated[
    str, typer.Option("--lab", help="Which lab; several can be up at once.", autocompletion=_complete_lab)
]
OverlayName = Annotated[
    str,
    typer.Option("--name", help="Which overlay; several can run at once.", autocompletion=_complete_overlay),
]

WHERE = "Where it runs"
OnLab = Annotated[
    str | None,
    typer.Option(
        "--lab",
        help="On this lab, not on this machine; see provision.",
        autocompletion=_complete_lab,
        rich_help_panel=WHERE,
    ),
]
