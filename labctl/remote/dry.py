"""What a run on a lab would do on each host, in commands; nothing is done, and no host is asked."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from labctl import choice, drivers, runner
from labctl.output import Output
from labctl.remote.deploy import Shelf
from labctl.remote.placing import place
from labctl.remote.play import in_words, target, words
from labctl.remote.site import agent_silence_s
from labctl.testbeds.lab import Host, Lab
from labctl.testbeds.store import Store
from labctl.topology import standard
from playbooks import collect, start
from playbooks.deploy import Deployed, deploy
from playbooks.prepare import assumed, prepare
from playbooks.steps import Playbook, shell

if TYPE_CHECKING:
    from labctl.conduct import Order

PORT = "PORT"
"""Free ones are asked for when the time has come."""


def show(out: Output, name: str, what: Order, pack: bool) -> None:
    """Deployment once, then every cell's first repetition, then what is brought home."""
    lab = Store(name).lab()
    for host, lines in commands(lab, what, pack).items():
        out.say(f"\n{host}:")
        for line in lines:
            out.say(f"  {line}")


def commands(lab: Lab, what: Order, pack: bool) -> dict[str, list[str]]:
    shelf = Shelf(choice.modules(what.cells))
    found: dict[str, list[str]] = {}
    deployments: dict[str, Deployed] = {}
    for host in lab.hosts:
        where = target(lab, host)
        there = assumed(where)
        lines = _first(prepare(where))
        more, deployed = words(deploy(where, there, shelf.for_host(there)))
        assert deployed is not None
        deployments[host.name] = deployed
        found[host.name] = [
            *lines,
            *more,
            *_first(start.agent(where, deployed, agent_silence_s(lab.testbed.timeouts))),
        ]
    for cell in what.cells:
        unit = next(unit for unit in what.units() if unit.cell == cell)
        _cell(found, lab, what.job(unit), pack)
    for host in lab.hosts:
        deployed = deployments[host.name]
        place = f"{deployed.root}/runs/ID"
        lines, _ = words(collect.collect(target(lab, host), deployed, place, Path(), clear=True))
        found[host.name] += lines
    return found


def _first(playbook: Playbook[Any]) -> list[str]:
    """Of a playbook that looks at its first answer, which there is none of."""
    return [in_words(next(playbook))]


def _cell(found: dict[str, list[str]], lab: Lab, job: runner.Job, pack: bool) -> None:
    cell = job.unit.cell
    cast = drivers.cast(cell)
    given = runner.given_to_clients(job)
    tree = standard(cell.brokers)
    hosts = place(lab, lab.hosts, tree.brokers, [client.name for client in cast], pack)

    def folder(host: Host) -> str:
        return f"~/{target(lab, host).folder}/runs/ID"

    for broker in tree.brokers:
        host = hosts[broker]
        command = start.broker(["python3"], f"{folder(host)}/nodes/{broker}.toml")
        found[host.name].append(f"{shell(command)}    # {cell.id}: broker {broker}")
    for client in cast:
        host = hosts[client.name]
        broker = job.unit.placement[client.name]
        address = f"{hosts[broker].inside or hosts[broker].address}:{PORT}"
        command = drivers.command(given, client, address, PurePosixPath(folder(host)), ["python3"])
        found[host.name].append(f"{shell(command)}    # {cell.id}: client {client.name}")
