"""How labs are shown: a bar per host while they come and go, tables of plans, hosts and remains."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from labctl.output import Output, is_terminal
from labctl.testbeds.labs.lab import Host, Lab
from labctl.testbeds.providers.provider import AcquirePlan, Resource, TellOfHost

STAGES = ("asking for a machine", "building", "running", "waiting for sshd", "ready")
"""How far a host is; words that are not here leave its bar where it is."""


@contextmanager
def host_progress(out: Output) -> Iterator[TellOfHost]:
    """A bar per host on a terminal; elsewhere a line for each change."""
    if not is_terminal(sys.stderr):
        guard = threading.Lock()

        def say(host: str, text: str) -> None:
            with guard:
                out.note(f"{host}: {text}")

        yield say
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.fields[host]}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[text]}"),
    )
    console = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
    with Progress(*columns, console=console) as progress:
        tasks: dict[str, TaskID] = {}
        adding = threading.Lock()

        def advance(host: str, text: str) -> None:
            with adding:
                if host not in tasks:
                    tasks[host] = progress.add_task("", total=len(STAGES), host=host, text=text)
            stage = STAGES.index(text) + 1 if text in STAGES else None
            progress.update(tasks[host], completed=stage, text=text)

        yield advance


def show_plan(out: Output, lab: Lab, plan: AcquirePlan) -> None:
    if plan.create:
        rows = [(made.kind, made.name) for made in plan.create]
        out.table(f"Lab {lab.name}: to be created", ("kind", "name"), rows)
    else:
        out.say(f"lab {lab.name}: nothing has to be created")
    if plan.quota:
        quota = [(name, q.need, q.left, "not enough" if q.short else "") for name, q in plan.quota.items()]
        out.table("Quota", ("resource", "needed", "left", ""), quota)
    out.say(f"{plan.vm_hours:g} VM-hours until the lab's lifetime ends, {lifetime(lab)}")
    for note in plan.notes:
        out.say(note)


def plan_document(lab: Lab, plan: AcquirePlan) -> dict[str, object]:
    return {
        "lab": lab.name,
        "create": plan.create,
        "quota": plan.quota,
        "vm_hours": plan.vm_hours,
        "notes": plan.notes,
        "ok": not plan.shortages,
    }


def show_lab(out: Output, lab: Lab) -> None:
    rows = [(host.name, host.state, host.address, host.inside, _short(host.detail)) for host in lab.hosts]
    columns = ("host", "state", "address", "inside", "detail")
    what = ", ".join((lab.testbed.provider, lab.phase, *(["hosts may be shared"] if lab.may_share else [])))
    out.table(f"Lab {lab.name} ({what}), {lifetime(lab)}", columns, rows)


def lab_document(lab: Lab) -> dict[str, object]:
    return {
        "lab": lab.name,
        "id": lab.id,
        "tag": lab.tag,
        "provider": lab.testbed.provider,
        "phase": lab.phase,
        "may_share": lab.may_share,
        "expires_at_s": lab.expires_at_s,
        "hosts": [_host_document(host) for host in lab.hosts],
    }


def _host_document(host: Host) -> dict[str, object]:
    names = ("name", "role", "state", "address", "port", "user", "inside", "provider_id", "detail")
    return {name: getattr(host, name) for name in names}


def show_resources(out: Output, title: str, resources: Sequence[Resource]) -> None:
    rows = [(each.kind, each.name, each.id, each.why) for each in resources]
    out.table(title, ("kind", "name", "id", "why"), rows)


def lifetime(lab: Lab) -> str:
    left_s = lab.expires_at_s - time.time()
    if left_s <= 0:
        return "its lifetime is over"
    return f"{left_s / 3600:.1f} h to live" if left_s >= 3600 else f"{left_s / 60:.0f} min to live"


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."
