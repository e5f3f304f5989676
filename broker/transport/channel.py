"""Channels (`broker.gate.channel`) over sockets: with the loop's clock, and the emulated delay of their link."""

from __future__ import annotations

import asyncio

from broker.gate import channel
from broker.gate.channel import Delaying
from broker.protocol.delay import Delay, DelayLine
from broker.transport.delayed import DelayedSender
from broker.transport.stream import Stream


def look_s(silence_s: float) -> float:
    """How long to wait between two looks at a connection that may be silent for `silence_s`."""
    return min(1.0, silence_s / 6)


def delaying(delay: Delay, name: str) -> Delaying | None:
    return None if delay.is_zero else lambda release: DelayedSender(DelayLine(delay, name), release)


class Channel(channel.Channel):
    stream: Stream | None

    def __init__(self, name: str, delay: Delay, silence_s: float) -> None:
        super().__init__(asyncio.get_running_loop(), silence_s, delaying(delay, name))
