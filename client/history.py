"""What a client tells of itself, one JSON object a line; the writer is that of the brokers.

A client notes what it issued, received and delivered, how its transactions began and ended, and each
message of a transaction with its number on the link; `labctl check` judges it.
"""

from __future__ import annotations

from typing import Any

from broker.node.history import HistoryFile
from broker.protocol.events import ARRIVED, DELIVERED, SENT
from broker.protocol.messages import Publish
from broker.protocol.wire import TRANSACTION_TYPES, AnyMessage
from client.settings import Settings


class ClientHistory:
    def __init__(self, settings: Settings, client_id: str, incarnation: int) -> None:
        """In the running loop; raises `OSError` if there can be no such file."""
        assert settings.history is not None
        self._file = HistoryFile(settings.history, client_id, "client", incarnation, settings.history_detail)
        self.is_full = settings.history_detail == "all"
        """Regular publications and single messages are noted as well: known before anything is done for them."""

    def note(self, name: str, /, **fields: Any) -> None:
        self._file.note(name, fields)

    def sent(self, broker: str, number: int, message: AnyMessage) -> None:
        if self.is_full and type(message) in TRANSACTION_TYPES:
            self._file.message(SENT, f"broker:{broker}", number, message)

    def arrived(self, broker: str, number: int, message: AnyMessage) -> None:
        if type(message) is Publish:
            self._file.note(DELIVERED, {"op": message.id, "event": message.event})
        elif type(message) in TRANSACTION_TYPES:
            self._file.message(ARRIVED, f"broker:{broker}", number, message)

    def close(self) -> None:
        self._file.close()
