"""Publications that are kept in flight: how many, how long each takes, and how many a second."""

from __future__ import annotations

import asyncio

import pytest

from labctl.bench.ends.meters import AcknowledgementMeter


class Publishing:
    """Ten seconds of it, five in flight."""

    def __init__(self) -> None:
        self.now = 100.0
        self.published: list[int] = []
        self.meter = AcknowledgementMeter(5, 10.0, self.published.append, lambda: self.now)

    def acknowledge(self, at: float, count: int) -> None:
        self.now = 100.0 + at
        self.meter.acknowledged(count)


async def figures_of(*acknowledgements: tuple[float, int]) -> tuple[list[int], dict[str, float]]:
    publishing = Publishing()
    publishing.meter.start()
    for at, count in acknowledgements:
        publishing.acknowledge(at, count)
    return publishing.published, await publishing.meter.done


def test_as_many_follow_as_are_acknowledged_until_the_time_is_over() -> None:
    published, figures = asyncio.run(figures_of((2.0, 2), (4.0, 3), (11.0, 1), (12.0, 4)))
    assert published == [5, 2, 3]
    assert figures["acknowledged"] == 10


def test_the_oldest_one_is_acknowledged_first() -> None:
    """Published at 0 (five), 2 (two) and 4 (three): they take 2, 2, 4, 4, 4, then 9, 9, and 8, 8, 8 seconds."""
    _, figures = asyncio.run(figures_of((2.0, 2), (4.0, 3), (11.0, 2), (12.0, 3)))
    assert figures["p50_us"] == pytest.approx(8e6)


def test_what_is_acknowledged_while_everything_is_cold_is_not_in_the_rate() -> None:
    _, figures = asyncio.run(figures_of((0.5, 5), (11.0, 5)))
    assert figures["acknowledged"] == 10
    assert figures["acknowledged_per_s"] == pytest.approx(5 / 10.0)
    assert figures["p50_us"] == pytest.approx(10.5e6)
