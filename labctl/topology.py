"""Which brokers there are and who is linked to whom: always one tree.

Pure except for `load`, which reads a file. Addresses and processes are the business of whoever
brings the overlay up.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from broker.protocol.delay import DELAY_MS_MAX, SIGMA_MAX, Delay, DelayError
from labctl import yamlfile
from labctl.exits import UsageProblem
from labctl.yamlfaults import nearest
from labctl.yamlfile import Document, Place, given

Link = tuple[str, str]

NO_DELAY = Delay()

CHILDREN_MAX = 3
"""Neighbours downward in a tree of a size that the experiments do not fix."""
_BROKER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class TopologyError(UsageProblem):
    """Not a tree of brokers; the text names what is wrong. `link` is the index of the guilty link."""

    def __init__(self, text: str, link: int | None = None) -> None:
        super().__init__(text)
        self.link = link


# The file as it is written

DelayMs = Annotated[float, Meta(ge=0, le=DELAY_MS_MAX)]
Sigma = Annotated[float, Meta(ge=0, le=SIGMA_MAX)]
Probability = Annotated[float, Meta(ge=0, le=1)]
StallRange = Annotated[
    tuple[DelayMs, DelayMs],
    Meta(extra={"problem": "expected the shortest and the longest stall, found {found}"}),
]
Ends = Annotated[Link, Meta(extra={"problem": "a link names two brokers, not {found}"})]


class DelaySettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What links add to each message, in either direction."""

    delay_ms: DelayMs | UnsetType = UNSET
    """The median, in milliseconds."""
    sigma: Sigma | UnsetType = UNSET
    """Of the log-normal distribution around the median; 0: every message takes the same time."""
    stall_probability: Probability | UnsetType = UNSET
    """Of a stall, per message; what is behind a stalled message waits with it."""
    stall_ms: StallRange | UnsetType = UNSET
    """The shortest and the longest stall, in milliseconds."""
    seed: int | UnsetType = UNSET
    """Of the random numbers: the same seed, the same delays."""


class LinkDelay(DelaySettings, frozen=True, kw_only=True):
    """What one link has different from the others."""

    between: Annotated[Ends, Meta(extra={"missing": "whose delay? Name the link: between: [b1, b2]"})]
    """The two brokers of the link."""


class Delays(Struct, frozen=True, forbid_unknown_fields=True):
    """Emulated delays of links."""

    brokers: DelaySettings = DelaySettings()
    """Of the links between brokers."""
    clients: DelaySettings = DelaySettings()
    """Of the links to clients."""
    links: tuple[LinkDelay, ...] = ()
    """What single links have different from the others."""


class TopologyFile(Struct, frozen=True, forbid_unknown_fields=True):
    """Which brokers there are and who is linked to whom: a tree, and the delays of its links if they have any.

    brokers: [b1, b2, b3]
    links: [[b1, b2], [b2, b3]]
    delay:
      brokers: {delay_ms: 2.2, sigma: 0.4, seed: 7}
      clients: {delay_ms: 3.3}
      links:
        - {between: [b1, b2], delay_ms: 20}
    """

    brokers: tuple[str, ...] | UnsetType = UNSET
    """Their ids; left out, the links name them."""
    links: tuple[Ends, ...] = ()
    """Pairs of brokers, as [[b1, b2], [b2, b3]]."""
    delay: Delays = Delays()


@dataclass(frozen=True)
class Topology:
    """A tree of brokers, checked when it is made."""

    brokers: tuple[str, ...]
    links: tuple[Link, ...]
    link_delays: tuple[Delay, ...] = ()
    """One per link, in their order; none at all means no delay anywhere."""
    client_delay: Delay = NO_DELAY

    def __post_init__(self) -> None:
        if not self.link_delays:
            object.__setattr__(self, "link_delays", (NO_DELAY,) * len(self.links))
        if len(self.link_delays) != len(self.links):
            raise TopologyError(f"{len(self.link_delays)} delays for {len(self.links)} links")
        _check_brokers(self.brokers)
        _check_links(self.brokers, self.links)

    def neighbours(self, broker: str) -> tuple[str, ...]:
        return self._adjacency[broker]

    def path(self, start: str, end: str) -> tuple[str, ...]:
        """The brokers from start to end, both included."""
        path = _path(self._adjacency, start, end)
        assert path, "a topology is connected"
        return path

    def delay(self, a: str, b: str) -> Delay:
        """Of the link between two neighbours, whichever is named first."""
        for link, delay in zip(self.links, self.link_delays, strict=True):
            if link in ((a, b), (b, a)):
                return delay
        raise TopologyError(f"there is no link {a} - {b}")

    def with_delays(
        self, links: Mapping[str, object] | None = None, clients: Mapping[str, object] | None = None
    ) -> Topology:
        """The same tree with some settings of every link's delay, and of the clients' links, replaced."""
        try:
            changed = tuple(structs.replace(delay, **links or {}) for delay in self.link_delays)
            return replace(
                self, link_delays=changed, client_delay=structs.replace(self.client_delay, **clients or {})
            )
        except DelayError as error:
            raise TopologyError(str(error)) from None

    def outline(self, label: Callable[[str], str] = str) -> list[str]:
        """The tree as lines of plain ASCII, from its first broker down."""
        return _outline(self._adjacency, self.brokers[0], label)

    @cached_property
    def _adjacency(self) -> dict[str, tuple[str, ...]]:
        return _adjacency(self.brokers, self.links)


def standard(count: int) -> Topology:
    """The experiments' overlays: 1; 3 in a line; 5 as a centre with four leaves; 9 as a centre, four
    inner brokers and one leaf on each. Any other count: a balanced tree, filled level by level, in
    which a broker has up to three neighbours below it.
    """
    if count < 1:
        raise TopologyError(f"an overlay of {count} brokers; there must be at least one")
    parents = {
        3: [1, 2],
        5: [1, 1, 1, 1],
        9: [1, 1, 1, 1, 2, 3, 4, 5],
    }.get(count, [index // CHILDREN_MAX + 1 for index in range(count - 1)])
    links = tuple((f"b{parent}", f"b{child}") for child, parent in enumerate(parents, start=2))
    return Topology(tuple(f"b{number}" for number in range(1, count + 1)), links)


def load(path: Path) -> Topology:
    document = yamlfile.read(path, TopologyFile, TopologyError)
    links = document.value.links
    brokers = document.value.brokers
    try:
        tree = Topology(_named(links) if brokers is UNSET else brokers, links)
    except TopologyError as error:
        raise document.error(str(error), *(() if error.link is None else ("links", error.link))) from None
    return _delayed(tree, document)


def _named(links: Sequence[Link]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(broker for link in links for broker in link))


def _delayed(tree: Topology, document: Document[TopologyFile]) -> Topology:
    def laid_over(default: Delay, settings: DelaySettings, *places: Place) -> Delay:
        own = {name: value for name, value in given(settings).items() if name != "between"}
        try:
            return structs.replace(default, **own)
        except DelayError as error:
            raise document.error(str(error), "delay", *places) from None

    written = document.value.delay
    default = laid_over(NO_DELAY, written.brokers, "brokers")
    clients = laid_over(NO_DELAY, written.clients, "clients")
    delays = dict.fromkeys((frozenset(link) for link in tree.links), default)
    for position, settings in enumerate(written.links):
        ends = frozenset(settings.between)
        if ends not in delays:
            text = f"there is no link {' - '.join(sorted(ends))}"
            raise document.error(text, "delay", "links", position, "between")
        delays[ends] = laid_over(default, settings, "links", position)
    per_link = tuple(delays[frozenset(link)] for link in tree.links)
    return replace(tree, link_delays=per_link, client_delay=clients)


def _check_brokers(brokers: Sequence[str]) -> None:
    if not brokers:
        raise TopologyError("no brokers; name at least one under 'brokers' or in a link")
    seen: set[str] = set()
    for broker in brokers:
        if not _BROKER_ID.fullmatch(broker):
            raise TopologyError(
                f"{broker!r} cannot be a broker's id: letters, digits, '.', '_' and '-', at most 64, "
                "beginning with a letter or a digit"
            )
        if broker in seen:
            raise TopologyError(f"the broker id {broker!r} is there twice")
        seen.add(broker)


def _check_links(brokers: Sequence[str], links: Sequence[Link]) -> None:
    adjacency: dict[str, list[str]] = {broker: [] for broker in brokers}
    group = {broker: {broker} for broker in brokers}
    for index, (a, b) in enumerate(links):
        for end in (a, b):
            if end not in adjacency:
                hint = nearest(end, brokers)
                raise TopologyError(f"the link {a} - {b} names an unknown broker {end!r}; {hint}", index)
        if a == b:
            raise TopologyError(f"the broker {a} is linked to itself", index)
        if b in adjacency[a]:
            raise TopologyError(f"the link {a} - {b} is there twice", index)
        if b in group[a]:
            raise TopologyError(f"the overlay has a cycle: {_cycle(brokers, adjacency, a, b)}", index)
        _merge(group, a, b)
        adjacency[a].append(b)
        adjacency[b].append(a)
    _check_connected(brokers, group)


def _merge(group: dict[str, set[str]], a: str, b: str) -> None:
    small, large = sorted((group[a], group[b]), key=len)
    large |= small
    for broker in small:
        group[broker] = large


def _cycle(brokers: Sequence[str], adjacency: dict[str, list[str]], a: str, b: str) -> str:
    start, end = sorted((a, b), key=brokers.index)
    return " - ".join((*_path(adjacency, start, end), start))


def _check_connected(brokers: Sequence[str], group: dict[str, set[str]]) -> None:
    reached = group[brokers[0]]
    if len(reached) < len(brokers):
        inside = ", ".join(broker for broker in brokers if broker in reached)
        outside = ", ".join(broker for broker in brokers if broker not in reached)
        raise TopologyError(f"the overlay falls apart: no link joins {inside} to {outside}")


def _adjacency(brokers: Sequence[str], links: Iterable[Link]) -> dict[str, tuple[str, ...]]:
    lists: dict[str, list[str]] = {broker: [] for broker in brokers}
    for a, b in links:
        lists[a].append(b)
        lists[b].append(a)
    return {broker: tuple(others) for broker, others in lists.items()}


def _path(
    adjacency: dict[str, tuple[str, ...]] | dict[str, list[str]], start: str, end: str
) -> tuple[str, ...]:
    """Shortest; empty when there is none."""
    came_from: dict[str, str] = {end: end}
    waiting = deque([end])
    while waiting and start not in came_from:
        here = waiting.popleft()
        for other in adjacency[here]:
            if other not in came_from:
                came_from[other] = here
                waiting.append(other)
    if start not in came_from:
        return ()
    path = [start]
    while path[-1] != end:
        path.append(came_from[path[-1]])
    return tuple(path)


def _outline(adjacency: dict[str, tuple[str, ...]], root: str, label: Callable[[str], str]) -> list[str]:
    lines: list[str] = []
    # A stack, not recursion: an overlay may be a line of a thousand brokers.
    stack: list[tuple[str, str, str, str]] = [(root, "", "", "")]
    while stack:
        broker, parent, branch, indent = stack.pop()
        lines.append(branch + label(broker))
        below = [other for other in adjacency[broker] if other != parent]
        for position, child in reversed(list(enumerate(below, start=1))):
            last = position == len(below)
            edge, margin = ("`-- ", "    ") if last else ("|-- ", "|   ")
            stack.append((child, broker, indent + edge, indent + margin))
    return lines
