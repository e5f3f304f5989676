"""`settled()`: a wave through the overlay behind everything that was sent before it; pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.protocol.hops import Hop, client_hop
from broker.protocol.messages import Refused, Settle, Settled
from broker.routing.membership import Wave, Waves
from broker.routing.ready import ProtocolError, Ready
from broker.routing.state import BrokerState

OPEN_SETTLES_MAX = 1024
"""Of one client."""


class Settling:
    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self.waves = Waves()
        self.from_client: dict[type, Callable[[str, Any], Ready]] = {Settle: self._settle_for_client}
        self.from_broker: dict[type, Callable[[Hop, Any], Ready]] = {
            Settle: self._settle,
            Settled: self._settled,
        }

    def _settle_for_client(self, client: str, message: Settle) -> Ready:
        guest = self._state.joined_guest(client)
        if guest.settles >= OPEN_SETTLES_MAX:
            reason = f"{client} has {OPEN_SETTLES_MAX} settles under way: the limit"
            return Ready([(client_hop(client), Refused(message.number, reason))], [])
        origin = f"{client}/{guest.incarnation}"
        ready = self._settle(client_hop(client), Settle(origin, message.number))
        guest.settles += 1
        return ready

    def _settle(self, source: Hop, message: Settle) -> Ready:
        key = (message.origin, message.number)
        if key in self.waves:
            raise ProtocolError(f"settle {message.number} of {message.origin} is under way already")
        onward = [hop for hop in self._state.neighbours if hop != source]
        wave = self.waves.start(key, source, onward)
        if wave is not None:
            return self._settle_ends(wave, Settled(*key))
        return Ready(self._state.to_others(source, message), [])

    def _settled(self, source: Hop, message: Settled) -> Ready:
        wave = self.waves.answer((message.origin, message.number), source)
        return Ready([], []) if wave is None else self._settle_ends(wave, message)

    def _settle_ends(self, wave: Wave, message: Settled) -> Ready:
        role, _, name = wave.origin.partition(":")
        guest = self._state.guests.get(name) if role == "client" else None
        if guest is not None and message.origin.endswith(f"/{guest.incarnation}"):
            guest.settles -= 1
        return Ready([(wave.origin, message)], [])
