"""The agent that starts and supervises processes on a host, and the commands that it starts.

The agent (`labctl/host/agent.py`, part of the bundle) lives as long as the line to it, and stops what it has
started when that ends. Pids and start times are in `state/processes.jsonl`, logs in `runs/ID/nodes/`.
"""

from __future__ import annotations

from collections.abc import Sequence

from playbooks.deploy import Deployed
from playbooks.steps import Attach, Playbook, Target, shell

_BROKER = ("-m", "broker", "--config")


def environment(deployed: Deployed) -> list[str]:
    """Only what we have brought, and the standard library; nothing of the user's own."""
    return [
        "env",
        f"PYTHONPATH={':'.join(deployed.paths)}",
        "PYTHONSAFEPATH=1",
        "PYTHONNOUSERSITE=1",
        "PYTHONUTF8=1",
    ]


def agent(target: Target, deployed: Deployed, silence_s: float) -> Playbook[None]:
    """`silence_s`: without a word from labctl for so long, it stops everything."""
    words = [target.python, "-m", "labctl.host.agent", "serve", f"{deployed.root}/state", f"{silence_s:g}"]
    yield Attach(shell([*environment(deployed), *words]), why="the agent; it stays")


def broker(python: Sequence[str], config: str) -> list[str]:
    return [*python, *_BROKER, config]


def config_of(command: Sequence[str]) -> str | None:
    """Whether this is a broker's command line, and with which configuration."""
    return command[-1] if tuple(command[-1 - len(_BROKER) : -1]) == _BROKER else None


def observer(python: Sequence[str]) -> list[str]:
    return [*python, "-m", "client.asking.observer"]
