"""Stop what an earlier run has left, and clear away what was brought."""

from __future__ import annotations

from playbooks.deploy import Deployed
from playbooks.prepare import Found
from playbooks.start import environment
from playbooks.steps import Playbook, Run, Target, shell


def stop(target: Target, deployed: Deployed) -> Playbook[list[str]]:
    """A sentence for each process that was still there. Only what carries a mark of ours is signalled."""
    words = [target.python, "-m", "labctl.agent", "stop", f"{deployed.root}/state"]
    result = yield Run(shell([*environment(deployed), *words]), why="stop what an earlier run has left")
    return result.out.splitlines()


def clear(found: Found) -> Playbook[None]:
    yield Run(shell(["rm", "-rf", "--", found.root]), why="everything that was brought", is_transfer=True)
