"""The path of messages through a broker's process: `broker.gate.transit`, with a loop's time and a history."""

from __future__ import annotations

import asyncio

from broker.core import Broker
from broker.gate.parties import Owner
from broker.gate.transit import Transit
from broker.journal.disk import reached
from broker.node.history import HistoryFile
from broker.protocol.events import MessageEvent
from broker.protocol.hops import Hop
from broker.protocol.wire import TRANSACTION_TYPES, AnyMessage
from broker.serving.peer import Peer


class Forwarder(Transit[Peer]):
    def __init__(self, core: Broker, owner: Owner[Peer], queue_bytes_max: int) -> None:
        super().__init__(core, owner, asyncio.get_running_loop(), queue_bytes_max)
        self.core = core

    def leave(self, number: int) -> None:
        reached("before-send")
        super().leave(number)

    def keep_history(self, history: HistoryFile) -> None:
        self.core.state.keeps_history = True
        if not history.has_messages:
            return

        def note(name: MessageEvent, hop: Hop, number: int, message: AnyMessage) -> None:
            if type(message) in TRANSACTION_TYPES:
                history.message(name, hop, number, message)

        self.outgoing.note = note
