"""Bring the files of a repetition home."""

from __future__ import annotations

from pathlib import Path

from playbooks.deploy import Deployed
from playbooks.start import environment
from playbooks.steps import Fetch, Playbook, Run, Target, shell


def collect(target: Target, deployed: Deployed, folder: str, into: Path, clear: bool) -> Playbook[None]:
    words = [target.python, "-m", "labctl.host.agent", "pack", folder]
    yield Fetch(shell([*environment(deployed), *words]), into, why="logs and histories of the repetition")
    if clear:
        yield Run(shell(["rm", "-rf", "--", folder]), why="they are at home now")


def logs(target: Target, name: str, lines: int) -> Playbook[str]:
    """Of the repetition that is on the host now: the end of a process's log or, without a name, which there are."""
    here = f'cd {shell([target.folder + "/runs"])} 2>/dev/null && cd "$(ls -t | head -n 1)" && cd nodes'
    if name:
        log, errors = shell([f"./{name}.jsonl"]), shell([f"./{name}.err"])
        # A log that was full has become NAME.1, one that was full before it NAME.2.
        old = f"for n in 9 8 7 6 5 4 3 2 1; do test ! -e {log}.$n || cat {log}.$n; done"
        there = f"{{ {old}; cat {log}; }} | tail -n {lines}; test ! -s {errors} || tail -n {lines} {errors}"
    else:
        there = "ls -l"
    result = yield Run(f"{here} && {{ {there}; }}", why="logs", may_fail=True)
    return result.out + result.err
