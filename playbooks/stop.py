"""Stop what an earlier run has left, and clear away what was brought."""

from __future__ import annotations

from playbooks.prepare import Found
from playbooks.steps import Playbook, Run, Target, shell


def stop_any(target: Target, found: Found) -> Playbook[list[str]]:
    """A sentence for each process that was still there. Only what carries a mark of ours is signalled.

    Any code bundle that is there will do; where there is none, nothing was ever started.
    """
    bundles, state = shell([f"{found.root}/bundles"]), shell([f"{found.root}/state"])
    result = yield Run(
        f"for bundle in {bundles}/*; do test -e $bundle/labctl/host/agent.py && "
        f"exec env PYTHONPATH=$bundle {target.python} -m labctl.host.agent stop {state}; done; true",
        why="stop what an earlier run has left",
    )
    return result.out.splitlines()


def clear(target: Target, found: Found) -> Playbook[None]:
    """Our folder, and those around it if nothing else is in them."""
    yield Run(
        f"cd && rm -rf -- {shell([found.root])} && {{ rmdir {_parents(target)} 2>/dev/null; true; }}",
        why="everything that was brought",
        takes="transfer",
    )


def _parents(target: Target) -> str:
    parts = target.folder.split("/")[:-1]
    return " ".join(shell(["/".join(parts[:depth])]) for depth in range(len(parts), 0, -1))
