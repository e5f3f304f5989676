"""Records without effect leave the tables; pure.

A record is *covered* by a newer one of its client that contains its filter, at every neighbour that knows it, and
*void* at its client's edge broker where the client's space is the same without it. What was dropped cannot be
looked at any more, and a transaction that is open may have counted on it: a neighbour's view has attracted it, or
an older operation of the same client still waits for its turn. So while something is open a record only becomes a
candidate, and is looked at when all that was open at that moment has ended: transactions that overlap for ever
do not keep the tables from shrinking.

Who begins after that and has an earlier place in the order all the same is told apart by its key: `floors`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from broker.matching.records import Record
from broker.protocol.hops import Hop, Sends
from broker.protocol.messages import Forget
from broker.protocol.vocabulary import NO_KEY, Key, Kind, Stamp
from broker.routing.prt import PRT
from broker.routing.srt import SRT


class Candidate(NamedTuple):
    kind: Kind
    client: str
    stamp: Stamp
    may_be_void: bool
    """Its client is ours, or its edge broker says that it has no effect."""


class Compaction:
    def __init__(self, srt: SRT, prt: PRT, bits: Mapping[Hop, int]) -> None:
        self._srt = srt
        self._prt = prt
        self._bits = bits
        self.unfinished: Sequence[Mapping[str, object]] = ()
        """By their ids, the transactions on whose account nothing may go; the broker tells where they are kept."""
        self.floors: dict[str, Key] = {}
        """By client of ours, the largest key of a record that was dropped because it had no effect: what has a
        smaller key, and begins now, cannot tell any more whether its client has changed the same since."""
        self._lingering: dict[str, set[Stamp]] = {}
        """By client of others, the records that its edge broker has dropped and that have an effect here, still."""
        self._young: list[Candidate] = []
        self._old: list[Candidate] = []
        self._blockers: set[str] = set()
        """Those that must end before the old ones are looked at."""
        self._open = 0

    @property
    def is_free(self) -> bool:
        """Whether nothing is open, so that records may go at once."""
        return not any(self.unfinished)

    @property
    def has_candidates(self) -> bool:
        return bool(self._young or self._old)

    def waiting(self) -> tuple[tuple[Candidate, ...], tuple[Candidate, ...]]:
        """What is to be looked at next, and what after that."""
        return tuple(self._old), tuple(self._young)

    def note(self, kind: Kind, client: str, stamp: Stamp, may_be_void: bool) -> None:
        """A record that has come, or has become everybody's, while something was open."""
        self._young.append(Candidate(kind, client, stamp, may_be_void))
        self._open = 1 << 62  # look soon

    def sweep(self) -> Sends:
        """Look at the candidates whose time has come; to be called after whatever may have ended something."""
        open_ = sum(map(len, self.unfinished))
        if self._open <= open_ != 0:
            self._open = open_
            return []  # nothing has ended
        self._open = open_
        sends: Sends = []
        names = set(chain(*self.unfinished))
        self._blockers &= names
        while not self._blockers and self.has_candidates:
            for candidate in self._old:
                sends += self._tidy(candidate)
            self._old, self._young = self._young, []
            self._blockers = set(names) if self._old else set()
        return sends

    def forget_client(self, client: str) -> None:
        self.floors.pop(client, None)
        self._lingering.pop(client, None)

    # Records of one kind and the other

    def _tidy(self, candidate: Candidate) -> Sends:
        if candidate.kind in ("adv", "uadv"):
            if self._srt.tidy(candidate.client, candidate.stamp) and candidate.may_be_void:
                self.raise_floor(candidate.client, candidate.stamp)
            return []
        record = self._prt.index.find(candidate.client, candidate.stamp)
        if record is None or record.tag is not None:
            return []
        sends = self.drop_covered(record) or []
        if self._prt.is_hidden(record):
            return sends + self._drop_hidden(record)
        return sends + self.drop_forgotten(record) if candidate.may_be_void else sends

    def drop_forgotten(self, record: Record) -> Sends:
        """Its client's edge broker has, or would. What has an effect here goes when it has none any more."""
        sends = self.drop_void(record)
        is_kept = self._prt.index.find(record.client, record.stamp) is record
        if is_kept and self._prt.hop_of(record.client) in self._bits:
            self._lingering.setdefault(record.client, set()).add(record.stamp)
        return sends

    def drop_covered(self, record: Record) -> Sends | None:
        """What a record hides goes, wherever that is known; None: there was nothing."""
        covered = self._prt.covered(record)
        sends: Sends = []
        for old in covered:
            sends += self._drop_hidden(old, record)
        return sends if covered else None

    def _drop_hidden(self, record: Record, by: Record | None = None) -> Sends:
        """Nobody is told: who knows it knows the newer one, too. But if it is void, that one may be, and be forgotten
        before it has hidden this one everywhere."""
        is_home = self._prt.hop_of(record.client) not in self._bits
        sends = self._told_to_forget(record) if is_home and self._prt.is_void(record) else []
        self._remove(record)
        self.look_behind((record,), by)
        return sends

    def drop_void(self, record: Record) -> Sends:
        """Whoever knows it is told."""
        if not self._prt.is_void(record):
            return []
        if self._prt.hop_of(record.client) not in self._bits:
            self.raise_floor(record.client, record.stamp)
        # A void `usub` has nothing older to take back: nor have those inside it that only some neighbours know.
        inside = [] if record.positive else self._prt.taken_back_before(record)
        sends: Sends = []
        for gone in (record, *inside):
            self._remove(gone)
            sends += self._told_to_forget(gone)
        self.look_behind((record, *inside))
        return sends

    def _remove(self, record: Record) -> None:
        self._prt.remove(record)
        lingering = self._lingering.get(record.client)
        if lingering is not None:
            lingering.discard(record.stamp)
            if not lingering:
                del self._lingering[record.client]

    def _told_to_forget(self, record: Record) -> Sends:
        told = [hop for hop, bit in self._bits.items() if record.sent & bit]
        return [(hop, Forget(record.client, record.stamp)) for hop in told]

    def look_behind(self, gone: Sequence[Record], cause: Record | None = None) -> None:
        """What answered to what is gone now may have no effect any more."""
        for old in gone:
            is_home = self._prt.hop_of(old.client) not in self._bits
            lingering = self._lingering.get(old.client, ())
            if not is_home and not lingering:
                return
            for record in self._prt.answers_to(old):
                may_go = record is not cause and record.tag is None and (is_home or record.stamp in lingering)
                if may_go and self._prt.is_void(record):
                    self.note(record.kind, record.client, record.stamp, may_be_void=True)

    def raise_floor(self, client: str, stamp: Stamp) -> None:
        """A record of a client of ours goes, or does not even come, because it has no effect."""
        self.floors[client] = max(self.floors.get(client, NO_KEY), stamp[0])
