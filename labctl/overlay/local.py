"""A local overlay: up, status, restart, down. Brokers are processes of this machine, found again by what is
written in their folder and by the configuration path on their command line.

A kill -9 of labctl at any moment leaves nothing that `down` cannot find: the folder is there before
the first process, and a process that was started but not yet written down still carries its path.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from labctl.exits import LabError, UsageProblem
from labctl.host import processes
from labctl.host.processes import How, Process
from labctl.overlay import launch, node_files
from labctl.overlay import state as states
from labctl.overlay.state import BrokerRecord, Durable, OverlayState
from labctl.topology import Topology
from playbooks import start

START_TIMEOUT_S = 20.0
UNRECORDED_WAIT_S = 0.5
"""How long `down` watches for a process that was forked, but not yet written down, when labctl died."""

Say = Callable[[str], None]


class OverlayError(LabError):
    """The overlay is not in the state that the command needs."""


class BrokerStatus(Struct, frozen=True):
    broker: str
    address: str
    pid: int | None
    alive: bool
    status: dict[str, Any] | None
    """What the broker says of itself; None when it does not answer."""
    error: str | None


class OverlayStatus(Struct, frozen=True):
    name: str
    state: Literal["up", "broken", "failed"]
    """Whole; not whole; never came up."""
    folder: str
    brokers: tuple[BrokerStatus, ...]
    missing: tuple[str, ...]
    """What the overlay lacks to be whole."""


class Stopped(Struct, frozen=True):
    broker: str
    pid: int | None
    how: How


class Overview(Struct, frozen=True):
    name: str
    phase: str
    brokers: int
    alive: int

    @property
    def stale(self) -> bool:
        """Not as it was left: a failed start has cleaned up after itself, an overlay has not."""
        return self.alive > 0 if self.phase == "failed" else self.alive < max(self.brokers, 1)


class OverlaySettings(Struct, frozen=True):
    common: node_files.Common = node_files.COMMON
    base_port: int | None = None
    """None: any free ports."""
    timeout_s: float = START_TIMEOUT_S
    durable: Durable | None = None


DEFAULTS = OverlaySettings()


def up(
    topology: Topology,
    name: str = "default",
    settings: OverlaySettings = DEFAULTS,
    report: Say = lambda text: None,
) -> OverlayState:
    """Start every broker; return when each is ready and every link stands. Not from a running loop."""
    with states.locked(name):
        _refuse_running(name)
        _refuse_to_forget(name)
        states.remove(name)
        states.make_folder(name)
        try:
            return _start(topology, name, settings, report)
        except LabError:
            _keep_as_failed(name)
            raise
        except BaseException:
            _stop(name)
            states.remove(name)
            raise


def restart(
    wanted: Sequence[str] = (),
    name: str = "default",
    timeout_s: float = START_TIMEOUT_S,
    report: Say = lambda text: None,
) -> dict[str, launch.Document]:
    """Start durable brokers again, where they listened before, and return what they say of themselves when they
    have their links with all brokers that run; those that still run are stopped first.

    Without `wanted` all that do not run.
    """
    state = _existing(name)
    _check_wanted(state, wanted)
    with states.locked(name):
        deadline = time.monotonic() + timeout_s
        running = {_broker_id(process): process for process in _processes(name)}
        chosen = tuple(wanted) or tuple(b.id for b in state.brokers if b.id not in running)
        report(f"starting {_brokers(len(chosen))} again")
        processes.stop(running[broker] for broker in chosen if broker in running)
        children, state = _spawn(state, chosen)
        up = {broker.id for broker in state.brokers if broker.id in chosen or broker.id in running}
        answers = _wait_until_linked(_part(state, up), children, deadline, _addresses(state, up))
        return {broker: answers[broker] for broker in chosen}


def _check_wanted(state: OverlayState, wanted: Sequence[str]) -> None:
    known = [broker.id for broker in state.brokers]
    for broker in wanted:
        if broker not in known:
            raise UsageProblem(f"overlay {state.name!r} has no broker {broker!r}: it has {', '.join(known)}")
    if state.durable is None:
        raise UsageProblem(
            f"the brokers of overlay {state.name!r} keep nothing, and one that comes back without its state ends"
            f" itself; start the whole overlay anew, `labctl overlay up --durable fsync` for one that can do this"
        )


def _part(state: OverlayState, up: Collection[str]) -> Topology:
    """The brokers that run, and the links between them."""
    links = tuple((a, b) for a, b in state.links if a in up and b in up)
    return Topology(tuple(broker.id for broker in state.brokers if broker.id in up), links)


def _addresses(state: OverlayState, up: Collection[str]) -> dict[str, str]:
    return {broker.id: broker.address for broker in state.brokers if broker.id in up}


def down(name: str = "default") -> tuple[Stopped, ...]:
    """Stop the overlay's processes and forget it. Done twice, the second time finds nothing to do."""
    if not states.folder(name).exists() and not _processes(name):
        return ()
    with states.locked(name):
        stopped = _stop(name)
        states.remove(name)
        return stopped


def status(name: str = "default", dump: bool = False, timeout_s: float = 5.0) -> OverlayStatus:
    """Ask every broker of the overlay. Not from a running loop."""
    state = _existing(name)
    alive = {(process.pid, process.started) for process in _processes(name)}
    addresses = {broker.id: broker.address for broker in state.brokers}
    answers = asyncio.run(launch.ask(addresses, dump, timeout_s))
    missing = launch.missing_in(Topology(tuple(addresses), state.links), answers)
    return OverlayStatus(
        name=name,
        state="up" if not missing else "failed" if state.phase == "failed" else "broken",
        folder=str(states.folder(name)),
        brokers=tuple(
            _broker_status(broker, (broker.pid, broker.started) in alive, answers[broker.id])
            for broker in state.brokers
        ),
        missing=tuple(missing),
    )


def overview() -> list[Overview]:
    """Every overlay that has left something on this machine, running or not."""
    return [_overview_of(name) for name in states.names()]


@contextmanager
def running(topology: Topology, name: str, settings: OverlaySettings = DEFAULTS) -> Iterator[OverlayState]:
    """An overlay for the length of a block."""
    state = up(topology, name, settings)
    try:
        yield state
    finally:
        down(name)


def _start(topology: Topology, name: str, settings: OverlaySettings, report: Say) -> OverlayState:
    deadline = time.monotonic() + settings.timeout_s
    count = len(topology.brokers)
    if settings.base_port is not None:
        state = _prepare(topology, name, settings, launch.ports_from(settings.base_port, count))
    else:
        with launch.reserved_ports(count) as ports:
            state = _prepare(topology, name, settings, ports)
    report(f"starting {_brokers(count)}")
    children, state = _spawn(state)
    report(f"waiting for the links between {_brokers(count)}")
    _wait_until_linked(topology, children, deadline, _addresses(state, topology.brokers))
    state = replace(state, phase="up")
    states.write(state)
    return state


def _prepare(topology: Topology, name: str, settings: OverlaySettings, ports: Sequence[int]) -> OverlayState:
    """Everything on disk, before anything runs."""
    folder = states.folder(name)
    addresses = {b: f"{launch.LOOPBACK}:{port}" for b, port in zip(topology.brokers, ports, strict=True)}
    records = []
    common = settings.common
    if settings.durable is not None:
        common = dataclasses.replace(common, durable=settings.durable, data_folder=str(folder), overlay=name)
    for node in node_files.plan(topology, addresses, common):
        config, log = folder / f"{node.id}.toml", folder / f"{node.id}.log"
        config.write_text(node_files.emit(node), encoding="utf-8")
        records.append(BrokerRecord(node.id, node.listen, str(config), str(log)))
    state = OverlayState(name, "starting", tuple(records), topology.links, settings.durable)
    states.write(state)
    return state


def _spawn(
    state: OverlayState, wanted: Collection[str] | None = None
) -> tuple[list[launch.BrokerProcess], OverlayState]:
    """All brokers, or those that are wanted."""
    children = []
    for index, record in enumerate(state.brokers):
        if wanted is not None and record.id not in wanted:
            continue
        child = launch.BrokerProcess(record)
        children.append(child)
        seen = processes.look(child.pid)
        written = replace(record, pid=child.pid, started=seen.started if seen else None)
        state = replace(state, brokers=(*state.brokers[:index], written, *state.brokers[index + 1 :]))
        states.write(state)
    return children, state


def _wait_until_linked(
    topology: Topology,
    children: Sequence[launch.BrokerProcess],
    deadline: float,
    addresses: Mapping[str, str],
) -> dict[str, launch.Document]:
    """What the brokers say of themselves by then."""
    answers: dict[str, launch.Document | str] = {}

    def look() -> dict[str, launch.Document | str]:
        for child in children:
            child.check()
        answers.update(asyncio.run(launch.ask(addresses, timeout_s=launch.ASK_TIMEOUT_S)))
        return answers

    if children:
        logs = Path(children[0].record.log).parent
        launch.wait_until_linked(topology, look, deadline - time.monotonic(), logs)
    return {broker: answer for broker, answer in answers.items() if isinstance(answer, dict)}


def _refuse_running(name: str) -> None:
    found = _processes(name)
    if found:
        raise OverlayError(
            f"overlay {name!r} is there already, with {_brokers(len(found))} running; "
            f"stop it with `labctl overlay down --name {name}` or choose another --name"
        )


def _refuse_to_forget(name: str) -> None:
    """What durable brokers have kept is removed by `down` only."""
    try:
        state = states.read(name)
    except states.StateError:
        return
    if state is not None and state.durable is not None and state.phase == "up":
        raise OverlayError(
            f"overlay {name!r} is durable, and what its brokers keep is still there; start them again with"
            f" `labctl overlay restart --name {name}`, or remove it with `labctl overlay down --name {name}`"
        )


def _keep_as_failed(name: str) -> None:
    """Nothing of it runs any more, but its logs tell why; the next `up` or `down` removes them."""
    _stop(name)
    state = states.read(name)
    if state is None:
        states.remove(name)
    else:
        states.write(replace(state, phase="failed"))


def _stop(name: str) -> tuple[Stopped, ...]:
    """Returns only when a look at all processes has shown none of this overlay's."""
    records = _records(name)
    unrecorded = any(record.pid is None for record in records)
    deadline = time.monotonic() + (UNRECORDED_WAIT_S if unrecorded else 0)
    stopped: dict[str, Stopped] = {}
    while True:
        found = _processes(name)
        how = processes.stop(found)
        stopped |= {_broker_id(p): Stopped(_broker_id(p), p.pid, how[p.pid]) for p in found}
        if not found and time.monotonic() >= deadline:
            break
        time.sleep(launch.POLL_S)
    for record in records:
        stopped.setdefault(record.id, Stopped(record.id, record.pid, "was not running"))
    return tuple(stopped.values())


def _records(name: str) -> tuple[BrokerRecord, ...]:
    """Without a readable state the processes are found all the same."""
    try:
        state = states.read(name)
    except states.StateError:
        return ()
    return state.brokers if state else ()


def _processes(name: str) -> list[Process]:
    """The brokers whose configuration lies in the overlay's folder."""
    folder = states.folder(name)
    return processes.find(lambda process: _config(process).parent == folder)


def _config(process: Process) -> Path:
    return Path(start.config_of(process.arguments) or "")


def _broker_id(process: Process) -> str:
    return _config(process).stem


def _existing(name: str) -> OverlayState:
    state = states.read(name)
    if state is None:
        raise OverlayError(f"there is no overlay {name!r}; `labctl overlay up --name {name}` starts one")
    return state


def _broker_status(record: BrokerRecord, alive: bool, answer: dict[str, Any] | str) -> BrokerStatus:
    document, error = (None, answer) if isinstance(answer, str) else (answer, None)
    return BrokerStatus(record.id, record.address, record.pid, alive, document, error)


def _overview_of(name: str) -> Overview:
    try:
        state = states.read(name)
        phase = state.phase if state else "unknown"
    except states.StateError:
        state, phase = None, "unknown"
    return Overview(name, phase, len(state.brokers) if state else 0, len(_processes(name)))


def _brokers(count: int) -> str:
    return "1 broker" if count == 1 else f"{count} brokers"
