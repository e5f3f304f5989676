"""A world of a recording as histories, for the checks that judge real runs.

Brokers tell what their cores tell here. Clients have told what they did; what was delivered to them out of
transactions is what is delivered here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from broker.protocol import events
from labctl.checks.judge import judge
from labctl.checks.verdict import Verdict
from labctl.results.histories import Line, NodeHistory, Result
from labctl.simulate.recorded.schedule import Schedule
from labctl.simulate.recorded.world import RecordedWorld, Unit


def staying(clients: Sequence[NodeHistory]) -> list[str]:
    """Who has said that all is over."""
    return [file.node for file in clients if any(line.name == events.FINISHED for line in file.lines)]


def verdicts(
    world: RecordedWorld, clients: Sequence[NodeHistory], without: Collection[Unit] = ()
) -> list[Verdict]:
    """Of a world that has been run; nothing is said about what was left out of it."""
    files = [_of_broker(world, name) for name in world.brokers]
    files += [_of_client(world, file, without) for file in clients if ("stay", file.node) not in without]
    found = judge(Result(files, world.tables))
    if world.faults:
        found.append(Verdict("placed", "invalid", len(world.faults), tuple(world.faults)))
    return found


def _of_broker(world: RecordedWorld, name: str) -> NodeHistory:
    core = world.brokers[name]
    told = [Line(*moment) for moment in world.moments if moment.node == name]
    return NodeHistory(name, name, "broker", core.incarnation, "all", told)


def _of_client(world: RecordedWorld, file: NodeHistory, without: Collection[Unit]) -> NodeHistory:
    told = [line for line in file.lines if unit_of_line(line) not in without and not _is_told_here(line)]
    for client, message in world.deliveries:
        if client == file.node:
            fields = {"op": message.id, "event": message.event}
            told.append(Line(client, len(told) + 1, 0.0, events.DELIVERED, fields))
    return NodeHistory(file.path, file.node, file.role, file.incarnation, file.detail, told)


def _is_told_here(line: Line) -> bool:
    return line.name in events.MESSAGES or (line.name == events.DELIVERED and not line.fields.get("tx"))


def unit_of_line(line: Line) -> Unit:
    if tx := line.fields.get("tx"):
        return ("transaction", tx)
    if line.name == events.ISSUED and line.fields["kind"] == "pub":
        return ("publication", str(line.fields["op"]))
    if line.name == events.ISSUED:
        return ("request", f"{line.node} {line.fields['op']}")
    return ("stay", line.node)


def run(schedule: Schedule, clients: Sequence[NodeHistory], traces: bool = False) -> RecordedWorld:
    world = RecordedWorld(schedule, staying(clients), traces)
    world.run()
    return world
