"""The path of messages through a broker's process: `broker.gate.transit`, with a loop's time and a history."""

from __future__ import annotations

import asyncio

from broker.core import Broker
from broker.gate.gate import Append
from broker.gate.transit import Owner, Transit
from broker.node.history import HistoryFile
from broker.protocol.events import MessageEvent
from broker.protocol.hops import Hop
from broker.protocol.wire import TRANSACTION_TYPES, AnyMessage
from broker.serving.peer import Peer


class Forwarder(Transit[Peer]):
    def __init__(
        self, core: Broker, owner: Owner[Peer], queue_bytes_max: int, append: Append | None = None
    ) -> None:
        super().__init__(core, owner, asyncio.get_running_loop(), queue_bytes_max, append)
        self._state = core.state

    def keep_history(self, history: HistoryFile) -> None:
        self._state.keeps_history = True
        if not history.has_messages:
            return

        def note(name: MessageEvent, hop: Hop, number: int, message: AnyMessage) -> None:
            if type(message) in TRANSACTION_TYPES:
                history.message(name, hop, number, message)

        self.note = note
