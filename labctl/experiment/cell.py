"""One point of the matrix of an experiment, and the delays that its links emulate; pure."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from broker.protocol.delay import Delay
from client.scenarios.approaches import approach_of
from labctl.topology import DelayMs, Probability, Sigma, StallRange

Load = Literal["closed", "open"]
Durable = Literal["none", "os", "fsync"]
STEP_MS = 50.0
"""The paper's; a cell with another one says so in its id."""


class Cell(Struct, frozen=True, order=True):
    """One point of the matrix."""

    scenario: str
    approach: str
    brokers: int = 3
    in_flight: int = 1
    copies: int = 1
    step_ms: float | None = None
    """Of the calibration; only BL-WAIT has one."""
    stalls: bool = False
    work: str | None = None
    """Disruption: what its transactions do."""
    load: str | None = None
    """Disruption: whether the publisher waits for the overlay."""
    durable: Durable = "none"
    """What brokers keep of what they are told: nothing, or a log that survives the process (os) or the machine."""
    faults: str = ""
    """The experiment whose faults happen meanwhile."""

    @property
    def id(self) -> str:
        parts = [
            self.scenario,
            self.approach,
            f"b{self.brokers}",
            f"k{self.in_flight}",
            f"c{self.copies}",
        ]
        if self.step_ms not in (None, STEP_MS):
            parts.append(f"step{self.step_ms:g}")
        if self.stalls:
            parts.append("stalls")
        if self.work == "consolidation":
            parts.append(self.work)
        if self.load == "open":
            parts.append(self.load)
        if self.durable != "none":
            parts.append(self.durable)
        if self.faults:
            parts.append(self.faults)
        return "-".join(parts)

    @property
    def waits(self) -> bool:
        return not approach_of(self.approach).is_transactional

    @property
    def cast(self) -> str:
        """The scenario whose clients take part."""
        return self.work or self.scenario

    def parameters(self) -> dict[str, Any]:
        """Of the last two only what is there: most cells have neither."""
        every = {name: getattr(self, name) for name in self.__struct_fields__}
        spared = [name for name, usual in (("durable", "none"), ("faults", "")) if every[name] == usual]
        return {name: value for name, value in every.items() if name not in spared}


class Links(Struct, frozen=True, forbid_unknown_fields=True):
    """Emulated delays; a stall happens only in the cells that have them on."""

    client_ms: DelayMs = 3.3
    """Median of a link between a client and its broker, in milliseconds."""
    broker_ms: DelayMs = 2.2
    """Median of a link between two brokers."""
    sigma: Sigma = 0.4
    """Of the log-normal distribution around the median; 0: every message takes the same time."""
    stall_probability: Probability = 5e-4
    """Of a stall, per message; what is behind a stalled message waits with it."""
    stall_ms: StallRange = (80.0, 160.0)
    """The shortest and the longest stall."""

    def __post_init__(self) -> None:
        self.client(True, 0)
        self.broker(True, 0)

    def client(self, stalls: bool, seed: int) -> Delay:
        return self._delay(self.client_ms, stalls, seed)

    def broker(self, stalls: bool, seed: int) -> Delay:
        return self._delay(self.broker_ms, stalls, seed)

    def _delay(self, delay_ms: float, stalls: bool, seed: int) -> Delay:
        probability = self.stall_probability if stalls else 0.0
        return Delay(delay_ms, self.sigma, probability, self.stall_ms, seed)
