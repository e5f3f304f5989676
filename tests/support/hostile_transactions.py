"""What a hostile peer says about transactions: right in its types only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker.protocol import dtx, stx
from broker.protocol.messages import Operation
from broker.protocol.vocabulary import NO_KEY, Mode
from broker.protocol.wire import AnyMessage

if TYPE_CHECKING:
    from tests.support.hostile import Hostile

_KINDS = ("adv", "uadv", "sub", "usub")
_STEP_KINDS = (*_KINDS, "pub", "tcm")


class HostileTransactions:
    def __init__(self, hostile: Hostile) -> None:
        self._hostile = hostile
        self._random = hostile.random

    def makers(self) -> tuple[Callable[[], AnyMessage], ...]:
        return (*self._dynamic(), *self._planned())

    def _dynamic(self) -> tuple[Callable[[], AnyMessage], ...]:
        hostile, random = self._hostile, self._random
        return (
            lambda: dtx.Begin(
                self._tx(), self._mode(), self._key(), random.choice((30_000, hostile.integer()))
            ),
            lambda: dtx.Begin(self._tx(), self._mode(), self._key(), 30_000),
            lambda: dtx.Begun(self._tx()),
            lambda: dtx.TxRequest(self._tx(), hostile.integer(), self._kind(), hostile.filter()),
            self._record,
            self._record,
            lambda: dtx.TxPublish(
                self._tx(), hostile.integer(), random.choice(("pub", "tcm")), hostile.event(), b""
            ),
            lambda: dtx.TxAck(self._tx(), hostile.integer(), self._reason(), hostile.integer()),
            lambda: dtx.Prepare(self._tx()),
            lambda: dtx.Prepared(self._tx(), self._reason()),
            lambda: dtx.Commit(self._tx()),
            lambda: dtx.Abort(self._tx(), hostile.text()),
            lambda: dtx.Ended(self._tx(), random.random() < 0.5, self._reason()),
            self._attracted,
        )

    def _planned(self) -> tuple[Callable[[], AnyMessage], ...]:
        hostile, random = self._hostile, self._random
        return (
            self._step,
            self._step,
            self._step,
            lambda: stx.StepEcho(self._tx(), hostile.integer()),
            lambda: stx.StepDone(self._tx(), hostile.integer(), hostile.client()),
            lambda: stx.StepPrepare(self._tx(), hostile.client(), self._before()),
            lambda: stx.StepPrepared(self._tx(), self._reason()),
            lambda: stx.StepCommit(self._tx(), hostile.client(), self._before()),
            lambda: stx.StepAbort(self._tx(), hostile.text()),
            lambda: stx.StepEnded(self._tx(), random.random() < 0.5, self._reason()),
            lambda: stx.StepVoid(self._tx(), (hostile.integer(), hostile.integer()), hostile.text()),
            lambda: stx.StepFailed(self._tx(), hostile.text()),
        )

    def _tx(self) -> str:
        hostile = self._hostile
        if self._random.random() < 0.1:
            return hostile.text()
        return f"{hostile.client()}/{hostile.life()}/{self._random.randrange(1, 4)}"

    def _mode(self) -> Mode:
        return self._random.choice(("d-tx", "d-tx-optimistic", "d-tx-ni"))

    def _kind(self) -> Any:
        return self._random.choice(_KINDS)

    def _key(self) -> tuple[int, str]:
        return NO_KEY if self._random.random() < 0.5 else (self._hostile.integer(), self._tx())

    def _reason(self) -> str:
        return "" if self._random.random() < 0.5 else self._hostile.text()

    def _record(self) -> dtx.TxRecord:
        hostile = self._hostile
        return dtx.TxRecord(
            self._tx(), hostile.integer(), self._kind(), hostile.client(), hostile.stamp(), hostile.filter(),
            self._random.random() < 0.2,
        )  # fmt: skip

    def _attracted(self) -> Operation:
        hostile = self._hostile
        return Operation(
            self._kind(), hostile.client(), hostile.stamp(), hostile.filter(), self._tx(),
            self._random.choice((0, 1, hostile.integer())), self._random.random() < 0.5,
        )  # fmt: skip

    def _step(self) -> stx.Step:
        hostile = self._hostile
        return stx.Step(
            self._tx(), hostile.client(), self._random.random() < 0.5, self._operation(0), self._before(),
            hostile.stamp(),
        )  # fmt: skip

    def _operation(self, depth: int) -> stx.Planned:
        hostile, random = self._hostile, self._random
        kind: Any = random.choice(_STEP_KINDS)
        if random.random() < 0.7:  # as it should be
            filter_ = hostile.filter() if kind in _KINDS else None
            event = hostile.event() if kind == "pub" else None
        else:
            filter_ = hostile.filter() if random.random() < 0.5 else None
            event = hostile.event() if random.random() < 0.5 else None
        nested: tuple[stx.Planned, ...] = ()
        if depth < 2 and random.random() < 0.5:
            nested = tuple(self._operation(depth + 1) for _ in range(random.randrange(3)))
        return stx.Planned(
            hostile.integer(), kind, hostile.client(), filter_, event, b"", hostile.client(), nested
        )

    def _before(self) -> tuple[stx.Before, ...]:
        hostile, random = self._hostile, self._random
        return tuple(
            stx.Before(
                hostile.integer(),
                random.choice(_STEP_KINDS),  # type: ignore[arg-type]
                hostile.client(),
                hostile.filter() if random.random() < 0.7 else None,
            )
            for _ in range(random.randrange(3))
        )
