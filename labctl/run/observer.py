"""Asking the brokers of a run, through a process that runs among them (`client.asking.observer`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from labctl.exits import LabError
from labctl.overlay.launch import Document
from labctl.run.places import Post
from labctl.topology import Topology

OBSERVER = "observer"
"""Its name among the processes of a run."""
ASK_S = 5.0
PROVE_S = 10.0
SLACK_S = 15.0
"""For the way there and back, and for a machine that is busy."""


class OverlayNotUp(LabError):
    """A link, or a lone broker, that lets nothing through."""


class Observer:
    def __init__(self, post: Post, receive: Callable[[float], str]) -> None:
        self._post = post
        self._receive = receive
        """Its next answer, within so many seconds."""

    def ask(self, addresses: Mapping[str, str], dump: bool = False) -> dict[str, Document | str]:
        """Every broker at once; a sentence instead of a document where one does not answer."""
        found: dict[str, Document | str] = self._request(
            {"ask": addresses, "dump": dump, "timeout_s": ASK_S}, ASK_S
        )["brokers"]
        return found

    def prove(self, tree: Topology, addresses: Mapping[str, str]) -> dict[str, float]:
        """Milliseconds that an event took from a client to one at the neighbour, by `b1>b2`."""
        found = self._request({"prove": addresses, "links": tree.links, "timeout_s": PROVE_S}, PROVE_S)
        if "error" in found:
            raise OverlayNotUp(found["error"])
        took: dict[str, float] = found["took_ms"]
        return took

    def _request(self, request: Mapping[str, object], limit_s: float) -> dict[str, Any]:
        text = msgspec.json.encode(request).decode()
        self._post.station.ask("tell", name=OBSERVER, text=text).get()
        found: dict[str, Any] = msgspec.json.decode(self._receive(limit_s + SLACK_S))
        return found
