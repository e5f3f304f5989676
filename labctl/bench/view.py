"""Benchmark results as a person reads them: each figure beside its limit or peer, and the ratio."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from labctl.bench.chain import ChainResult
from labctl.bench.durability import DurabilityResult
from labctl.bench.history_cost import HistoryResult
from labctl.bench.matching import MatchingResult
from labctl.bench.peers import PeerResult
from labctl.bench.recovery import RecoveryResult
from labctl.bench.rounds import QUIET_SHARE
from labctl.bench.transactions import TransactionResult

Rows = list[tuple[str, ...]]


def chain_table(result: ChainResult) -> tuple[str, Sequence[str], Rows]:
    rounds = "one round" if result.rounds == 1 else f"median of {result.rounds} rounds"
    title = (
        f"{result.brokers} brokers in a line, {result.subscriptions} subscriptions at each,"
        f" events of {result.message_bytes} bytes, {rounds}"
    )
    columns = ["", "brokers", "relays (limit)", "ratio"]
    rows: Rows = [
        (
            "events/s",
            f"{result.events_per_s:,.0f}",
            f"{result.limit_events_per_s:,.0f}",
            f"{result.events_ratio:.2f}",
        ),
        _trip("p50", result.rtt_p50_us, result.limit_rtt_p50_us),
        _trip("p99", result.rtt_p99_us, result.limit_rtt_p99_us),
        _trip("p99.9", result.rtt_p999_us, result.limit_rtt_p999_us),
    ]
    rows.append(("broker at rest", f"{result.rest_cpu_percent:.3f} % CPU", "", ""))
    rows.append(("broker starts in", f"{result.start_ms:.0f} ms", "", ""))
    library = [f"{result.library_events_per_s:,.0f}", f"{result.library_rtt_p50_us:.0f} us", "", "", "", ""]
    columns.append("with client library")
    rows = [(*row, cell) for row, cell in zip(rows, library, strict=True)]
    if result.peer is not None:
        columns += [result.peer, "ratio"]
        rows[0] += (f"{result.peer_events_per_s:,.0f}", f"{result.peer_ratio:.2f}")
        rows[1:] = [(*row, "", "") for row in rows[1:]]
    return title, columns, rows


def matching_table(result: MatchingResult) -> tuple[str, Sequence[str], Rows]:
    title = f"Which hops want an event? {result.subscriptions:,} subscriptions, eight hops"
    rows = [
        ("decision", result.decision_us, result.bitset_decision_us),
        ("decision with 100 subscriptions", result.decision_us_at_100, result.bitset_decision_us_at_100),
        (
            "decision, event with all ten attributes",
            result.decision_us_all_attributes,
            result.bitset_decision_us_all_attributes,
        ),
        ("decision beside a dispatcher without holes", result.decision_us_without_holes, None),
        (f"... with {result.holes:,} holes", result.decision_us_with_holes, None),
        ("of the dispatcher's own events, without holes", result.own_decision_us_without_holes, None),
        ("... half of them in a hole", result.own_decision_us_with_holes, None),
        ("insert one", result.insert_us, None),
        ("remove one", result.remove_us, None),
    ]
    shown: Rows = [(name, _us(ours), "" if peer is None else _us(peer)) for name, ours, peer in rows]
    shown.append(("memory of one", f"{result.bytes_per_subscription:.0f} bytes", ""))
    return title, ("", "index", "plain bitset"), shown


def transactions_table(results: Sequence[TransactionResult]) -> tuple[str, Sequence[str], Rows]:
    title = "Dispatching transactions on three brokers, one after the other"
    columns = ["", "p50", "p99", "crossings", "bare relays", "ratio", "tx/s", "messages"]
    rows: Rows = [
        (
            result.protocol,
            f"{result.p50_us:,.0f} us",
            f"{result.p99_us:,.0f} us",
            str(result.crossings),
            f"{result.crossings * result.crossing_us:,.0f} us",
            f"{result.ratio:.2f}",
            f"{result.transactions_per_s:,.0f}",
            str(result.messages),
        )
        for result in results
    ]
    for result in results:
        if result.regular_share is not None:
            shares = [100 * share for share in result.regular_shares]
            single = f"{len(shares)} times, {min(shares):.0f} to {max(shares):.0f} %"
            rest = [""] * (len(columns) - 2)
            rows.append(
                (
                    f"regular events beside {result.protocol} ({single})",
                    f"{100 * result.regular_share:.1f} %",
                    *rest,
                )
            )
    return title, columns, rows


def durability_tables(result: DurabilityResult) -> Iterator[tuple[str, Sequence[str], Rows]]:
    sync_us = result.transactions[0].fdatasync_us
    columns = ["durable", "p50, alone", "tx/s, ten in flight", "of none", "durable steps", "syncs a step"]
    for protocol in dict.fromkeys(row.protocol for row in result.transactions):
        rows: Rows = [
            (
                row.durable,
                f"{row.p50_us:,.0f} us",
                f"{row.transactions_per_s:,.0f}",
                f"{row.share:.2f}",
                str(row.durable_steps),
                "" if row.syncs_per_step is None else f"{row.syncs_per_step:.2f}",
            )
            for row in result.transactions
            if row.protocol == protocol
        ]
        yield f"{protocol} on three brokers; an fdatasync takes {sync_us:,.0f} us", columns, rows
    yield (
        "Regular events through three brokers",
        ["durable", "events/s", "of none", "round trip", "events a sync", "bare loop", "ratio"],
        [
            (
                row.durable,
                f"{row.events_per_s:,.0f}",
                f"{row.share:.2f}",
                f"{row.rtt_p50_us:,.0f} us",
                "" if row.events_per_sync is None else f"{row.events_per_sync:,.0f}",
                "" if row.limit_events_per_s is None else f"{row.limit_events_per_s:,.0f}",
                "" if row.limit_share is None else f"{row.limit_share:.2f}",
            )
            for row in result.events
        ],
    )
    if result.recovery is not None:
        yield _recovery_table(result.recovery)
    if result.peers:
        yield peers_table(result.peers)


def _recovery_table(result: RecoveryResult) -> tuple[str, Sequence[str], Rows]:
    title = f"A broker is started again: {result.subscriptions:,} subscriptions, {result.transactions:,} open transactions"
    return (
        title,
        ("", "s"),
        [
            ("it goes on after", f"{result.recovery_s:.2f}"),
            ("its process is ready after", f"{result.start_s:.2f}"),
            ("... with an empty folder", f"{result.bare_start_s:.2f}"),
            ("reading the files alone", f"{result.read_s:.3f}"),
            ("doing everything again, without a snapshot", f"{result.again_s:.2f}"),
        ],
    )


def peers_table(results: Sequence[PeerResult]) -> tuple[str, Sequence[str], Rows]:
    first = results[0]
    flushes = "what is flushed, nobody counts here"
    if first.flushes_per_fdatasync is not None:
        flushes = (
            f"the disk is flushed {first.flushes_per_fdatasync:.2f} times for it,"
            f" and for others {first.flushes_at_rest_per_s:,.0f} times a second"
        )
    title = (
        f"Regular publications to one broker, each acknowledged; an fdatasync takes {first.fdatasync_us:,.0f} us,"
        f" {flushes}"
    )
    columns = (
        "",
        "in flight",
        "acknowledged/s",
        "p50",
        "syncs each",
        "flushes each",
        "compared with",
        "ratio",
    )
    return (
        title,
        columns,
        [
            (
                result.name,
                str(result.in_flight),
                f"{result.acknowledged_per_s:,.0f}",
                f"{result.p50_us:,.0f} us",
                _each(result.syncs_per_publication),
                _each(result.flushes_per_publication),
                result.beside,
                f"{result.ratio:.2f}",
            )
            for result in results
        ],
    )


def promises(results: Sequence[PeerResult]) -> Iterator[str]:
    """What an acknowledgement of each says."""
    for name, promise in {result.name: result.promise for result in results}.items():
        yield f"{name}: {promise}."


def _each(count: float | None) -> str:
    return "unknown" if count is None else f"{count:.3f}"


def disturbance(stolen_shares: Sequence[float]) -> str:
    """What a reader has to know of the machine; empty: nothing."""
    worst = max(stolen_shares)
    if worst <= QUIET_SHARE:
        return ""
    return (
        f"This machine's hypervisor gave up to {100 * worst:.0f} % of its processors to others meanwhile, also in the least"
        " disturbed rounds: the figures say little about it; measure again later."
    )


def _trip(name: str, ours_us: float, limit_us: float) -> tuple[str, ...]:
    return (f"round trip {name}", f"{ours_us:.0f} us", f"{limit_us:.0f} us", f"{ours_us / limit_us:.2f}")


def _us(value: float) -> str:
    return f"{value:.2f} us"


def history_table(results: Sequence[HistoryResult]) -> tuple[str, Sequence[str], Rows]:
    title = (
        f"Dispatching transactions ({results[0].protocol}) on three brokers, by what their nodes write down"
    )
    columns = ["history", "p50", "ratio", "tx/s", "lines/tx", "bytes/tx", "a line"]
    rows: Rows = [
        (
            result.detail,
            f"{result.p50_us:,.0f} us",
            f"{result.ratio:.2f}",
            f"{result.transactions_per_s:,.0f}",
            f"{result.lines:.0f}",
            f"{result.bytes:,.0f}",
            "" if result.us_per_line is None else f"{result.us_per_line:.1f} us",
        )
        for result in results
    ]
    return title, columns, rows
