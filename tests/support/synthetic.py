"""Synthetic result folders with a known truth: any size, seeded, in the form that the runner leaves.

A transaction is one publication of E to the agent whose turn it is: small enough to make millions, and
complete enough for every check. Times follow the paper's figures, so that its claims hold on them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from msgspec import Struct

from broker.protocol import events
from labctl import topology
from labctl.conduct import calibrations
from labctl.conduct.wait_search import CONFIDENCE, Calibration, Trial, TrialTransaction, upper_bound
from labctl.experiment.cell import Cell, Links
from labctl.report.judgement import claims
from labctl.results import accounts

CLIENTS = ("E", "D", "A1", "A2")
LATENCY_MS: Mapping[str, float] = {
    "bl-wait": 190.0,
    "d-tx": 570.0,
    "d-tx-ni": 565.0,
    "s-tx": 50.0,
    "d-tx-optimistic": 400.0,
    "s-tx-safe": 60.0,
}
"""Mean on three brokers, one transaction at a time."""
OVERLAY: Mapping[str, tuple[float, float]] = {
    "bl-wait": (0.6, 1.56),
    "d-tx": (0.7, 1.75),
    "d-tx-ni": (0.7, 1.5),
    "s-tx": (0.7, 1.3),
}
"""Factors on one broker and on nine."""
IN_FLIGHT: Mapping[str, float] = {"bl-wait": 1.5, "s-tx": 2.8, "d-tx": 4.2, "d-tx-ni": 4.0}
COPIES: Mapping[str, float] = {"bl-wait": 1.5, "s-tx": 1.5, "d-tx": 8.0, "d-tx-ni": 3.0}
"""Factors at ten."""
DROP: Mapping[str, float] = {"d-tx": 0.4, "d-tx-ni": 0.35, "s-tx": 0.0}
RATE = 4000.0
WINDOW_S = 0.1
WAIT_MS = 100.0
SIGMA = 0.1
MESSAGES: Mapping[str, float] = {"bl-wait": 14, "d-tx": 50, "d-tx-ni": 50, "s-tx": 26}
CODE = {"broker": "b" * 64, "client": "c" * 64, "runner": "d" * 64}


class Spec(Struct, frozen=True):
    """What to make."""

    cells: tuple[Cell, ...]
    repetitions: int = 5
    transactions: int = 20
    warm_up: int = 2
    seed: int = 1
    profile: str = "standard"
    wrong: tuple[str, ...] = ()
    """Cells in which every tenth transaction also reaches the other agent."""
    spread: float = 0.02
    """Between repetitions, as a share of the mean."""
    windows: int = 60


def truth_ms(cell: Cell) -> float:
    """The mean latency that the generator aims at."""
    mean = LATENCY_MS[cell.approach]
    low, high = OVERLAY.get(cell.approach, (0.7, 1.5))
    mean *= {1: low, 3: 1.0, 5: (1 + high) / 2}.get(cell.brokers, high)
    mean *= 1 + (IN_FLIGHT.get(cell.approach, 2.0) - 1) * (cell.in_flight - 1) / 9
    mean *= 1 + (COPIES.get(cell.approach, 2.0) - 1) * (cell.copies - 1) ** 2 / 81
    if cell.approach == "bl-wait" and cell.step_ms == 1:
        mean *= 0.6
    return mean * (1.4 if cell.stalls else 1.0)


def base() -> tuple[Cell, ...]:
    return tuple(claims.cell(approach) for approach in ("bl-wait", "d-tx", "d-tx-ni", "s-tx"))


def matrix() -> tuple[Cell, ...]:
    """Every cell that a claim or a figure asks for."""
    four = ("bl-wait", "d-tx", "d-tx-ni", "s-tx")
    six = (*four, "d-tx-optimistic", "s-tx-safe")
    found: dict[str, Cell] = {}
    for cell in (
        *(claims.cell(a, stalls=s) for a in six for s in (False, True)),
        *(claims.cell("bl-wait", step_ms=1.0, stalls=s) for s in (False, True)),
        *(claims.cell(a, brokers=b) for a in four for b in (1, 3, 5, 9)),
        *(claims.cell(a, in_flight=k) for a in four for k in (1, 2, 5, 10)),
        *(claims.cell(a, copies=c) for a in six for c in (1, 2, 5, 10)),
        *(claims.cell(a, scenario="consolidation") for a in six),
        *(
            claims.cell(a, scenario="disruption", work=work, load=load)
            for a in four[1:]
            for work in ("dispatching", "consolidation")
            for load in ("closed", "open")
        ),
    ):
        found[cell.id] = cell
    return tuple(found.values())


def write(root: Path, spec: Spec) -> Path:
    """A finished result at `root`."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "run.json").write_text(json.dumps(_run(spec), indent=1))
    for cell in spec.cells:
        if cell.waits:
            _write_calibration(root, cell)
        for number in range(1, spec.repetitions + 1):
            write_repetition(root, spec, cell, number)
    return root


def parameters(cell: Cell) -> dict[str, Any]:
    found = {name: getattr(cell, name) for name in cell.__struct_fields__}
    if cell.approach == "bl-wait" and cell.step_ms is None:
        found["step_ms"] = 50.0
    return found


def _run(spec: Spec) -> dict[str, Any]:
    cells = [{"id": c.id, "parameters": parameters(c), "repetitions": spec.repetitions} for c in spec.cells]
    return {
        "format": 1,
        "experiment": "synthetic",
        "profile": spec.profile,
        "seed": spec.seed,
        "started": "2026-01-02T03:04:05Z",
        "resolved": {"name": "synthetic", "disruption": {"window_ms": 1e3 * WINDOW_S}},
        "cells": cells,
        "testbed": {
            "kind": "local",
            "delay": {"client_ms": 3.3, "broker_ms": 2.2, "sigma": 0.4, "stalls": False},
        },
        "code": CODE,
        "git": {"commit": "0" * 40, "diff_sha256": None},
        "versions": {"python": "3.11.7"},
        "machine": {"cpus": 2, "model": "synthetic", "memory": 8 << 30, "kernel": "6.1", "python": "3.11.7"},
        "calibrations": [f"calibrations/{cell.id}.json" for cell in spec.cells if cell.waits],
    }


def _write_calibration(root: Path, cell: Cell) -> None:
    """As `labctl calibrate-wait` would have made it."""
    late = TrialTransaction(False, "late-subscription", "placement 1, copy 0, transaction 7")
    runs = (Trial(50.0, 7, 6, (late,)), Trial(WAIT_MS, 200, 200))
    made = Calibration(WAIT_MS, 50.0, 200, 50.0, upper_bound(0, 200), CONFIDENCE, runs)
    setting = calibrations.Setting(cell, Links(), seed=1, repetitions=1, transactions=200)
    path = root / "calibrations" / f"{cell.id}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(msgspec.json.encode(calibrations.describe(setting, made)))


STOLEN_SHARE = 0.015
"""Of the host that lost most to its hypervisor's other guests."""


def write_repetition(root: Path, spec: Spec, cell: Cell, number: int) -> Path:
    random = Random(f"{spec.seed} {cell.id} {number}")
    target = root / "cells" / cell.id / f"{number:02d}"
    target.mkdir(parents=True)
    brokers = topology.standard(cell.brokers).brokers
    placement = {
        _name(client, copy, cell): random.choice(brokers) for copy in range(cell.copies) for client in CLIENTS
    }
    mean_s = truth_ms(cell) / 1e3 * (1 + random.gauss(0, spec.spread))
    transactions = list(_transactions(spec, cell, mean_s, random))
    _lines(target / "transactions.jsonl", transactions)
    document = {
        "cell": cell.id,
        "parameters": parameters(cell),
        "wait_ms": WAIT_MS if cell.waits else None,
        "repetition": number,
        "seed": spec.seed * 1000 + number,
        "placement": placement,
        "transactions": spec.transactions,
        "warm_up": spec.warm_up,
        "started": "2026-01-02T03:04:05Z",
        "ended": "2026-01-02T03:05:05Z",
        "profile": spec.profile,
        "steal": {"b1": 0.001, "b2": STOLEN_SHARE},
    }
    nodes = [*brokers, *placement]
    _write_nodes(target, nodes, random)
    _write_messages(target, cell, nodes, sum(not t["warm_up"] for t in transactions))
    _write_history(target, cell, brokers, placement, transactions)
    if cell.scenario == "disruption":
        _lines(target / "rates.jsonl", _rates(spec, cell, random))
        samples = ({"agent": "A1", "due_s": 100 + n, "latency_ms": 10.0 + n} for n in range(101))
        _lines(target / "latencies.jsonl", samples)
    (target / "cell.json").write_text(json.dumps(document | {"measured": accounts.measured(target)}))
    return target


def _name(client: str, copy: int, cell: Cell) -> str:
    return client if cell.copies == 1 else f"{client}-{copy}"


def _transactions(spec: Spec, cell: Cell, mean_s: float, random: Random) -> Iterator[dict[str, Any]]:
    is_wrong = cell.id in spec.wrong
    for copy in range(cell.copies):
        free = [100.0 + 0.001 * lane for lane in range(cell.in_flight)]
        for number in range(spec.warm_up + spec.transactions):
            lane = min(range(len(free)), key=free.__getitem__)
            start = free[lane]
            ack = start + mean_s * random.lognormvariate(-SIGMA * SIGMA / 2, SIGMA)
            outcome = start + 0.9 * (ack - start)
            free[lane] = ack
            wrong = is_wrong and number % 10 == 9
            yield {
                "copy": copy,
                "number": number,
                "tx": "" if cell.approach == "bl-wait" else f"{_name('E', copy, cell)}/1/{number}",
                "warm_up": number < spec.warm_up,
                "agent": f"A{number % 2 + 1}",
                "start_s": round(start, 7),
                "outcome_s": round(outcome, 7),
                "ack_s": round(ack, 7),
                "outcome": "committed",
                "reason": "",
                "correct": not wrong,
                "fault": "wrong-recipient" if wrong else "",
            }


def _write_nodes(target: Path, nodes: Sequence[str], random: Random) -> None:
    for node in nodes:
        samples = [
            {
                "t": 10**9 * second,
                "node": node,
                "event": "vitals",
                "cpu_percent": round(random.uniform(3, 20), 3),
                "cpu_s": 0.1 * second,
                "rss_bytes": 30_000_000,
                "loop_lag_ms_max": round(random.uniform(0.1, 2), 3),
            }
            for second in range(1, 6)
        ]
        _lines(target / "nodes" / f"{node}.jsonl", [{"t": 0, "node": node, "event": "started"}, *samples])


def _write_messages(target: Path, cell: Cell, nodes: Sequence[str], transactions: int) -> None:
    total = MESSAGES.get(cell.approach, 40) * transactions
    each = {
        "messages_in": round(total / len(nodes)),
        "messages_out": round(total / len(nodes)),
        "bytes_in": round(80 * total / len(nodes)),
        "bytes_out": round(80 * total / len(nodes)),
    }
    (target / "messages.json").write_text(json.dumps(dict.fromkeys(nodes, each)))


def _rates(spec: Spec, cell: Cell, random: Random) -> Iterator[dict[str, Any]]:
    for window in range(spec.windows):
        transaction = window % 10 == 5
        for agent in ("A1", "A2"):
            rate = RATE / 2 * (1 - (DROP[cell.approach] if transaction else 0)) * random.gauss(1, 0.02)
            yield {
                "agent": agent,
                "window": window,
                "start_s": 100 + WINDOW_S * window,
                "events": round(rate * WINDOW_S),
                "transaction": transaction,
                "send_lag_ms": round(random.uniform(0, 2), 3),
            }


def _write_history(
    target: Path,
    cell: Cell,
    brokers: Sequence[str],
    placement: Mapping[str, str],
    transactions: Iterable[Mapping[str, Any]],
) -> None:
    logs: dict[str, list[str]] = {node: [] for node in (*brokers, *placement)}

    def add(node: str, time: float, name: str, fields: str) -> None:
        log = logs[node]
        log.append(
            f'{{"node":"{node}","number":{len(log) + 1},"time":{time:.7f},"name":"{name}","fields":{{{fields}}}}}\n'
        )

    for node in logs:
        role = "client" if node in placement else "broker"
        add(node, 0, events.FIRST, f'"role":"{role}","incarnation":1,"detail":"transactions"')
    for place, (client, home) in enumerate(placement.items()):
        add(client, 1 + 1e-6 * place, events.CONNECTED, f'"home":"{home}"')
        add(client, 2 + 1e-6 * place, events.ISSUED, f'"op":1,"kind":"sub","filter":[["to"],["{client}"]]')
        add(client, 2 + 1e-6 * place, events.ISSUED, '"op":2,"kind":"adv","filter":[["s"],["x"]]')
    for place, client in enumerate(placement):
        add(client, 3 + 1e-6 * place, events.STARTED, "")
    for order, t in enumerate(transactions):
        if t["tx"]:
            _add_transaction(add, cell, brokers, order, t)
    for client in placement:
        add(client, 1e6, events.FINISHED, "")
    for node, log in logs.items():
        path = target / "history" / f"{node}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(log))


def _add_transaction(add: Any, cell: Cell, brokers: Sequence[str], order: int, t: Mapping[str, Any]) -> None:
    """begin, its publication at every broker, commit everywhere, delivery, the end."""
    coordinator = _name("E", t["copy"], cell)
    agent = _name(t["agent"], t["copy"], cell)
    tx, start, end = f'"tx":"{t["tx"]}"', t["start_s"], t["outcome_s"]
    step = (end - start) / 20
    add(coordinator, start, events.BEGIN, f'{tx},"mode":"{cell.approach}"')
    add(brokers[0], start + step, events.BEGUN, f'{tx},"key":[{order + 1},"{t["tx"]}"]')
    event = f'"event":{{"s":"x","to":"{agent}","n":{t["number"]}}}'
    add(coordinator, start + 2 * step, events.ISSUED, f'{tx},"op":1,"kind":"pub","frame":1,{event}')
    for broker in brokers:
        add(
            broker,
            start + 3 * step,
            events.PROCESSED,
            f'{tx},"op":1,"client":"{coordinator}","source":"x","stamp":null',
        )
        add(broker, start + 5 * step, events.COMMITTED, tx)
    add(agent, start + 6 * step, events.DELIVERED, f'{tx},"op":1,{event}')
    if not t["correct"]:
        other = _name("A1" if t["agent"] == "A2" else "A2", t["copy"], cell)
        add(other, start + 7 * step, events.DELIVERED, f'{tx},"op":1,{event}')
    add(agent, start + 8 * step, events.ENDED, f'{tx},"outcome":"committed","reason":""')
    add(coordinator, end, events.ENDED, f'{tx},"outcome":"committed","reason":""')


def _lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in rows)
