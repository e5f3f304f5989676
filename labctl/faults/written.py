"""The part `faults:` of an experiment's file: the model by which it is read, and what else can be wrong with it; pure.

The file names brokers, links and clients, which are those of the cells of its matrix: `check` holds it to each of
them, and `resolve` makes the plan of a repetition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from labctl.faults import drawn, plan, stage
from labctl.faults.drawn import FaultChoice
from labctl.faults.plan import (
    KINDS,
    LINK_KINDS,
    NODE_KINDS,
    Fault,
    FaultPlan,
    FaultPlanError,
    FaultyNode,
    Kind,
    LinkFault,
    NodeFault,
)
from labctl.faults.stage import FaultStage
from labctl.topology import Link
from labctl.yamlfile import Document, Place, given

DURATION_S_MAX = 86_400
Seconds = Annotated[float, Meta(ge=0, le=DURATION_S_MAX)]
Duration = Annotated[float, Meta(gt=0, le=DURATION_S_MAX)]
NodeName = Annotated[str, Meta(description="A node, as `broker b2` or `client A1`.")]
Ends = Annotated[Link, Meta(extra={"problem": "a link names two brokers, not {found}"})]
Names = Annotated[list[str], Meta(min_length=1, extra={"problem": "a part without brokers"})]
Parts = Annotated[
    list[Names],
    Meta(min_length=2, max_length=100, extra={"problem": "a partition has two parts or more, not {found}"}),
]
Milliseconds = Annotated[float, Meta(gt=0, le=60_000)]
Range = Annotated[
    tuple[Duration, Duration], Meta(extra={"problem": "expected the shortest and the longest time"})
]


class Event(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One fault: when it begins, what happens, and for how long."""

    at_s: Annotated[Seconds, Meta(extra={"missing": "when? Write at_s: and the seconds since the beginning"})]
    """Seconds after the warm-up."""
    kill: NodeName | UnsetType = UNSET
    """A node that is killed (SIGKILL), and started again after restart_after_s."""
    pause: NodeName | UnsetType = UNSET
    """A node that is stopped (SIGSTOP) for for_s."""
    fill_disk: NodeName | UnsetType = UNSET
    """A broker whose data folder is full for for_s."""
    cut: Ends | UnsetType = UNSET
    """A link between two brokers that nothing gets through for for_s."""
    slow: Ends | UnsetType = UNSET
    """A link between two brokers that takes by_ms longer for for_s."""
    partition: Parts | UnsetType = UNSET
    """Brokers in two or more parts; the links between the parts are cut for for_s."""
    for_s: Duration | UnsetType = UNSET
    """How long it lasts."""
    restart_after_s: Duration | UnsetType = UNSET
    """Kill: how long the node is away."""
    by_ms: Milliseconds | UnsetType = UNSET
    """Slow: what is added to each message, either way."""


class RandomFaults(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Faults that a seed draws, one after another."""

    every_s: Annotated[Duration, Meta(extra={"missing": "how often? Write every_s:"})]
    """There is one in each such piece of time, but for the first, which shows what is usual."""
    kinds: Annotated[
        list[Kind],
        Meta(
            min_length=1, extra={"missing": "what may happen? Write kinds:", "problem": "this list has none"}
        ),
    ]
    """What may happen."""
    nodes: Literal["brokers", "clients", "all"] = "brokers"
    """What may be killed or paused."""
    for_s: Range = (0.5, 2.0)
    """The shortest and the longest fault."""
    by_ms: Milliseconds = 50.0
    """What a slow link adds to each message."""


class FaultsFile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What goes wrong while transactions are measured; they go on for lasts_s, however many there are then."""

    lasts_s: Annotated[Duration, Meta(extra={"missing": "how long is measured? Write lasts_s:"})]
    """How long is measured; every fault is over by then."""
    seed: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    """Of the random ones; left out, each repetition has its own, which follows from the seed of the run."""
    events: list[Event] = []
    """Faults at given times."""
    random: RandomFaults | UnsetType = UNSET
    """Faults that a seed draws, beside those at given times."""


def resolve(written: FaultsFile, setting: FaultStage, seed: int) -> FaultPlan:
    """The plan of a repetition; `seed` is for a file that has none. Raises `FaultPlanError`."""
    faults = [_fault(event, setting) for event in written.events]
    if written.random is not UNSET:
        choice = _choice(written.random, setting)
        own_seed = seed if written.seed is UNSET else written.seed
        faults += drawn.draw(choice, written.lasts_s, setting.tree, own_seed, faults)
    return plan.made(written.lasts_s, faults)


def check(
    document: Document[Any], written: FaultsFile, settings: Iterable[FaultStage], *place: Place
) -> None:
    """Raises the document's error, with file and line, for what cannot be done in one of the settings."""
    if not written.events and written.random is UNSET:
        raise document.error("no fault: write 'events' or 'random'", *place)
    for position, event in enumerate(written.events):
        for text, key in _misfits(event):
            raise document.error(text, *place, "events", position, *key)
    for setting in settings:
        _check(document, written, setting, *place)


def _check(document: Document[Any], written: FaultsFile, setting: FaultStage, *place: Place) -> None:
    for position, event in enumerate(written.events):
        try:
            plan.made(written.lasts_s, [_fault(event, setting)])
        except FaultPlanError as error:
            raise document.error(str(error), *place, "events", position, _kinds(event)[0]) from None
    try:
        resolve(written, setting, 0)
    except FaultPlanError as error:
        where = () if written.random is UNSET else ("random",)
        raise document.error(str(error), *place, *(where or ("events",))) from None


def _kinds(event: Event) -> list[Kind]:
    words = given(event)
    return [kind for kind in KINDS if kind in words]


_FOR = {"kill": "restart_after_s"}


def _misfits(event: Event) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What of an event does not go with the rest of it, and the key that is to blame."""
    kinds, words = _kinds(event), given(event)
    if not kinds:
        yield f"what happens? Name one of {', '.join(KINDS)}", ()
        return
    if len(kinds) > 1:
        yield f"{kinds[0]} and {kinds[1]} are two faults: write each by itself", (kinds[1],)
    kind = kinds[0]
    for key in ("for_s", "restart_after_s", "by_ms"):
        needed = key == _FOR.get(kind, "for_s") or (key == "by_ms" and kind == "slow")
        if needed and key not in words:
            yield f"{key!r} is missing: {kind} needs it", ()
        elif not needed and key in words:
            instead = "; write 'restart_after_s'" if kind == "kill" and key == "for_s" else ""
            yield f"{key!r} does not go with {kind}{instead}", (key,)


def _fault(event: Event, setting: FaultStage) -> Fault:
    words, kind = given(event), _kinds(event)[0]
    times = {"at_s": event.at_s, "for_s": words[_FOR.get(kind, "for_s")]}
    if kind in NODE_KINDS:
        fault = NodeFault(kind=kind, node=stage.node_of(words[kind], setting), **times)
        if reason := stage.why_not(fault, setting):
            raise FaultPlanError(reason)
        return fault
    assert kind in LINK_KINDS
    links = (
        stage.between(words[kind], setting.tree)
        if kind == "partition"
        else (stage.link_of(words[kind], setting.tree),)
    )
    return LinkFault(kind=kind, links=links, by_ms=words.get("by_ms", 0.0), **times)


def _choice(random: RandomFaults, setting: FaultStage) -> FaultChoice:
    """What may be drawn; raises `FaultPlanError` if a kind can happen to nothing."""
    shortest, longest = random.for_s
    if shortest > longest:
        raise FaultPlanError(f"for_s goes from {shortest:g} to {longest:g}; the shortest time comes first")
    if longest >= random.every_s:
        raise FaultPlanError(
            f"a fault of {longest:g} s in every {random.every_s:g} s leaves no time between them"
        )
    nodes: dict[Kind, list[FaultyNode]] = {}
    for kind in NODE_KINDS:
        if kind in random.kinds:
            nodes[kind] = _candidates(kind, random, setting)
    if any(kind in LINK_KINDS for kind in random.kinds) and not setting.tree.links:
        raise FaultPlanError("there is no link that could be cut or slowed: the overlay is one broker")
    return FaultChoice(nodes=nodes, **{n: v for n, v in structs.asdict(random).items() if n != "nodes"})


def _candidates(kind: Any, random: RandomFaults, setting: FaultStage) -> list[FaultyNode]:
    brokers = [FaultyNode("broker", name) for name in setting.tree.brokers]
    clients = [FaultyNode("client", name) for name in setting.clients]
    wanted = {"brokers": brokers, "clients": clients, "all": [*brokers, *clients]}[random.nodes]
    reasons = [
        stage.why_not(NodeFault(kind=kind, node=node, at_s=0, for_s=random.for_s[1]), setting)
        for node in wanted
    ]
    found = [node for node, reason in zip(wanted, reasons, strict=True) if not reason]
    if not found:
        raise FaultPlanError(reasons[0])
    return found
