"""What a transaction has written, until all brokers have committed it; pure.

A broker that has committed cannot tell when the others have. The *home* of a transaction, its coordinator's edge
broker, can: answers are gathered there. It tells all the others (`Over`): of many at once, or at once where
somebody waits for it. Until then

- a `usub` of it counts for isolated transactions, and not for anybody else: a broker that has not committed still
  sends an event only to where it was wanted before, and it must not be dropped there. (Not so in D-TX_NI and in
  plans that are voted on: there all brokers have what takes its place before any of them commits.)
- nothing that the transaction has written is compacted: a broker that has not committed may wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from broker.matching.records import Record
from broker.protocol.hops import Hop, is_client
from broker.protocol.messages import Over
from broker.routing.ready import Ready
from broker.routing.tables import Routing

OVER_MAX = 100
"""Transactions in one message: their ids are as long as their clients' names."""


class Retirement:
    def __init__(self, routing: Routing) -> None:
        self._routing = routing
        self.written: dict[str, list[tuple[Record, Hop]]] = {}
        """By transactions that have committed here, and perhaps not everywhere, with the hops they came from."""
        self._news: list[str] = []
        """Transactions of our clients that have ended everywhere; the others do not know yet."""
        self.from_broker: dict[type, Callable[[Hop, Any], Ready]] = {Over: self._over}

    @property
    def has_news(self) -> bool:
        return bool(self._news)

    def committed(self, tx: str, records: Iterable[tuple[Record, Hop]]) -> None:
        self.written.setdefault(tx, []).extend(records)

    def ended(self, tx: str) -> None:
        """At home: every broker has committed."""
        self._news.append(tx)

    def tell(self) -> Ready:
        """Let the others know what has ended everywhere."""
        news, self._news = self._news, []
        return self._retire("", news)

    def _over(self, source: Hop, message: Over) -> Ready:
        return self._retire(source, message.txs)

    def _retire(self, source: Hop, txs: Sequence[str]) -> Ready:
        routing = self._routing
        for tx in txs:
            for record, hop in (*self.written.pop(tx, ()), *routing.reveal(tx)):
                routing.compaction.note(record.kind, record.client, record.stamp, is_client(hop))
        batches = [Over(tuple(txs[place : place + OVER_MAX])) for place in range(0, len(txs), OVER_MAX)]
        others = [hop for hop in routing.neighbours if hop != source]
        return Ready([(hop, over) for over in batches for hop in others], [])
