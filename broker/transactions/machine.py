"""What every transaction protocol has to offer to the core; pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from broker.matching.records import Record
from broker.protocol.hops import Hop
from broker.protocol.messages import Operation
from broker.routing.ready import Ready


class Machine(ABC):
    """One protocol at one broker. It brings its handlers, by type of message."""

    from_client: Mapping[type, Callable[[str, Any], Ready]]
    from_broker: Mapping[type, Callable[[Hop, Any], Ready]]
    unfinished: tuple[Mapping[str, object], ...]
    """By their ids, transactions that are open here, and those that have ended here and not everywhere."""

    @abstractmethod
    def client_left(self, client: str) -> Ready:
        """A client is gone: one of ours, or one of another broker."""

    @abstractmethod
    def expire(self, now: float) -> Ready:
        """Nothing stays open for ever."""

    @abstractmethod
    def owns(self, message: Operation) -> bool:
        """Whether a record, written in some transaction, belongs to one of this protocol."""

    @abstractmethod
    def adopt(self, record: Record, message: Operation) -> bool:
        """Such a record has come by itself, attracted; False: its transaction was aborted, it is to be dropped."""

    @abstractmethod
    def describe(self) -> dict[str, list[dict[str, Any]]]:
        """What `labctl overlay status` shows as open, by kind."""

    def client_away(self, client: str) -> Ready:
        """A client of ours has lost its connection; it may come back."""
        return Ready([], [])

    def adopted(self, message: Operation, ready: Ready) -> None:  # noqa: B027 (most have nothing to do then)
        """A record that was adopted stands in the tables now."""

    def advertised(self) -> Ready:
        """What is advertised has changed: somebody may have waited for that."""
        return Ready([], [])
