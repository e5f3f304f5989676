"""What must arrive on links, by the words of cores and clients alone, whoever crashes meanwhile.

It knows nothing of how frames are numbered and windows kept: whatever a core or a client says is due at the other end
of its link, once and in that order, and each message is compared when a core or a client gets it. What a broker has got
and said since the last entry that its crash has left it has not happened: then nothing of it may have been seen outside.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from msgspec import Struct, field

from broker.gate.peer import Peer
from broker.protocol import wire
from broker.protocol.hops import Hop
from broker.protocol.messages import Hello, Welcome
from broker.protocol.wire import HEADER_BYTES, AnyMessage

Way = tuple[Hop, Hop, int]
"""A direction of a link, and the incarnation of the client at one of its ends (0: between brokers)."""
COUNT = slice(HEADER_BYTES + 1, HEADER_BYTES + 5)
"""Where a frame says how many messages it has."""


class Traffic(Struct):
    """Of one way."""

    said: list[AnyMessage] = field(default_factory=list)
    arrived: int = 0
    written: int = 0
    """The newest that stood in a frame."""
    told: int = 0
    """So many the receiver has said that it has processed."""
    is_over: bool = False
    """The broker has ended the session that it was for: nothing is due any more."""
    is_given_up: bool = False
    """The client knows that it has."""


class ExpectedArrivals:
    def __init__(self) -> None:
        self.checked = 0
        self.faults: list[str] = []
        self.crash_faults: list[str] = []
        """What a broker has told others, and does not know any more."""
        self.recovered = 0
        """So many links have been compared after crashes."""
        self._ways: dict[Way, Traffic] = {}
        self._past: dict[Hop, list[tuple[int, Callable[[], None]]]] = {}
        """Of each broker with a journal: by what entry something happened, and how that is undone."""

    def sent(self, way: Way, message: AnyMessage, entry: int = 0) -> None:
        """`entry`: of the sender's journal, on which this stands."""
        traffic = self._traffic(way)
        traffic.said.append(message)
        if entry:
            self._note(way[0], entry, lambda: self._unsay(way, traffic))

    def arrived(self, way: Way, message: AnyMessage, entry: int = 0) -> None:
        """`entry`: of the receiver's journal."""
        traffic = self._traffic(way)
        if traffic.is_over:
            return
        self.checked += 1
        place = traffic.arrived
        expected = traffic.said[place] if place < len(traffic.said) else None
        traffic.arrived += 1
        if message != expected:
            source, target, _ = way
            self.faults.append(f"{target} got {message} of {source} where {expected} was due")
        if entry:
            self._note(way[1], entry, lambda: self._return(way, traffic))

    def forget(self, way: Way, holder: Hop = "", entry: int = 0) -> None:
        """`holder` has ended the session that this was for."""
        traffic = self._traffic(way)
        if traffic.is_over:
            return
        traffic.is_over = True
        if entry:

            def remember() -> None:
                traffic.is_over = False

            self._note(holder, entry, remember)

    def give_up(self, way: Way) -> None:
        """The client that this was for, or of, has been told that its session has ended."""
        self._traffic(way).is_given_up = True

    def left(self) -> list[str]:
        return [
            f"{target} did not get {len(traffic.said) - traffic.arrived} messages of {source},"
            f" {traffic.said[traffic.arrived]} first"
            for (source, target, _), traffic in self._ways.items()
            if len(traffic.said) > traffic.arrived and not (traffic.is_over or traffic.is_given_up)
        ]

    # What really left

    def wrote(self, source: Hop, target: Hop, incarnation: int, data: bytes) -> None:
        """A frame was written, or a greeting."""
        there, back = (
            self._traffic((source, target, incarnation)),
            self._traffic((target, source, incarnation)),
        )
        _, first, processed = wire.read_header(data)
        if first:
            there.written = max(there.written, first + int.from_bytes(data[COUNT], "big") - 1)
            back.told = max(back.told, processed)
            return
        for message in wire.decode(data[HEADER_BYTES:]):
            if isinstance(message, Hello | Welcome):
                back.told = max(back.told, message.received)

    # Crashes

    def crashed(self, broker: Hop, newest: int) -> None:
        """This entry is the newest that its journal has."""
        past = self._past.get(broker, [])
        while past and past[-1][0] > newest:
            past.pop()[1]()

    def compare(self, broker: Hop, peers: dict[Hop, Peer]) -> None:
        """What stands on its links when it has recovered, with what was said before."""
        for (source, target, incarnation), traffic in self._ways.items():
            if broker in (source, target):
                hop = target if source == broker else source
                peer = peers.get(hop)
                if peer is not None and incarnation in (0, peer.incarnation):
                    self.recovered += 1
                    found = _sending(peer, traffic) if source == broker else _receiving(peer, traffic)
                    if traffic.is_over:
                        found = "is here again, and was gone"
                elif traffic.is_over or not (traffic.said if source == broker else traffic.arrived):
                    continue
                else:
                    found = "is not known any more"
                if found:
                    self.crash_faults.append(f"to {broker} after its crash {hop} {found}")

    def _traffic(self, way: Way) -> Traffic:
        traffic = self._ways.get(way)
        if traffic is None:
            traffic = self._ways[way] = Traffic()
        return traffic

    def _note(self, broker: Hop, entry: int, undo: Callable[[], None]) -> None:
        self._past.setdefault(broker, []).append((entry, undo))

    def _unsay(self, way: Way, traffic: Traffic) -> None:
        source, target, _ = way
        message, number = traffic.said.pop(), len(traffic.said) + 1
        if traffic.written >= number and not traffic.is_over:
            self.crash_faults.append(f"{source} does not know of {message}, which it had sent to {target}")
        traffic.written = min(traffic.written, number - 1)
        traffic.arrived = min(traffic.arrived, number - 1)

    def _return(self, way: Way, traffic: Traffic) -> None:
        source, target, _ = way
        if traffic.told >= traffic.arrived and not traffic.is_over:
            message = traffic.said[traffic.arrived - 1]
            self.crash_faults.append(f"{target} does not know of {message}, of which it had told {source}")
            traffic.told = traffic.arrived - 1
        traffic.arrived -= 1


def _sending(peer: Peer, traffic: Traffic) -> str:
    """What is wrong with what it keeps for a peer; empty: nothing."""
    link = peer.link
    if link.taken != len(traffic.said):
        return f"has been sent {link.taken} messages, and it was {len(traffic.said)}"
    if link.sent_processed > traffic.arrived:
        return f"has processed {link.sent_processed} messages, and got only {traffic.arrived}"
    kept = peer.state().kept
    pieces = b"".join(messages for messages, _ in kept)
    expected = list(islice(traffic.said, link.sent_processed, None))
    if kept and wire.decode(wire.body(pieces, sum(count for _, count in kept))) != expected:
        return "is sent other messages than before"
    return ""


def _receiving(peer: Peer, traffic: Traffic) -> str:
    processed = peer.link.processed
    if processed != traffic.arrived:
        return f"has had {processed} messages processed, and it was {traffic.arrived}"
    return ""
