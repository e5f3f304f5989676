"""Faults in an experiment: what they may happen to in its cells, and the plan of each repetition; pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from client.scenarios import catalogue
from labctl.experiment import client_processes
from labctl.experiment.cell import Cell
from labctl.experiment.client_processes import Client
from labctl.faults import written
from labctl.faults.plan import FaultPlan
from labctl.faults.stage import FaultStage
from labctl.faults.written import FaultsFile
from labctl.topology import standard
from labctl.yamlfile import Document

FAULTS = "faults"
"""The key of the file."""


def cells(document: Document[Any], faults: FaultsFile, found: Sequence[Cell], name: str) -> tuple[Cell, ...]:
    """Those of an experiment of this name; raises the document's error where faults cannot happen in one of them."""
    for cell in found:
        if cell.waits:
            text = f"{cell.approach!r} has no place beside faults: its wait is calibrated without any"
            raise document.error(text, FAULTS)
    written.check(document, faults, map(setting, found), FAULTS)
    return tuple(replace(cell, faults=name) for cell in found)


def setting(cell: Cell) -> FaultStage:
    clients = {client.name: _why_not_killed(cell, client) for client in client_processes.cast(cell)}
    return FaultStage(standard(cell.brokers), clients, cell.durable != "none", cell.id)


def plan(faults: FaultsFile, cell: Cell, seed: int) -> FaultPlan:
    return written.resolve(faults, setting(cell), seed)


def _why_not_killed(cell: Cell, client: Client) -> str:
    """Somebody who comes back by the same name begins anew: with what it sets up, and with nothing that it knew."""
    if client.coordinates:
        return "it coordinates, and what it knows of its transactions would be gone"
    if catalogue.is_foreign(cell.scenario):
        return f"whether somebody can take up its part in {cell.scenario} again is not known"
    if cell.scenario == "disruption":
        if client.role in client_processes.roles(cell.scenario).agents:
            return "it counts regular events, and what it has counted would be gone"
        if cell.work == "consolidation":
            return "it sends the regular events"
    return ""
