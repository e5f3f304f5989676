"""`labctl bench`: how fast the broker is, beside the limit of this machine in the same run."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from broker.protocol.vocabulary import D_TX, PROTOCOLS
from labctl.commands.options import Json
from labctl.output import Output

app = typer.Typer(invoke_without_command=True)


class PeerKind(StrEnum):
    MOSQUITTO = "mosquitto"


class StoringPeer(StrEnum):
    NATS = "nats"
    RABBITMQ = "rabbitmq"
    MOSQUITTO = "mosquitto"


# An enum, because typer takes no list of a Literal; mypy cannot see its members, and nobody names one.
TxProtocol = StrEnum("TxProtocol", {name: name for name in PROTOCOLS})  # type: ignore[misc]


@app.callback(epilog="Examples: labctl bench --peer mosquitto; labctl bench matching --subscriptions 100000")
def chain(  # noqa: PLR0913, PLR0917 - each option is one knob of the measurement
    context: typer.Context,
    brokers: Annotated[int, typer.Option(min=1, help="Length of the chain.")] = 3,
    subscriptions: Annotated[
        int, typer.Option(min=0, help="At each broker, beside the measured one.")
    ] = 1000,
    events: Annotated[int, typer.Option(min=1, help="Sent in each round.")] = 300_000,
    payload_bytes: Annotated[int, typer.Option(min=0, help="Of each event.")] = 64,
    round_trips: Annotated[int, typer.Option(min=1, help="Measured in each round.")] = 3000,
    rounds: Annotated[
        int, typer.Option(min=1, help="Of which the median counts; disturbed ones are taken again.")
    ] = 5,
    peer: Annotated[PeerKind | None, typer.Option(help="Also measure bridged brokers of this kind.")] = None,
    json: Json = False,
) -> None:
    """Measure events per second and round trip through a chain of brokers.

    Beside each figure stands the limit: the same frames through relays that only decode and forward them.
    """
    if context.invoked_subcommand is not None:
        return
    from labctl.bench.chain import ChainSettings, run
    from labctl.bench.view import chain_table

    out = Output(json)
    plan = ChainSettings(
        brokers=brokers,
        subscriptions=subscriptions,
        events=events,
        payload_bytes=payload_bytes,
        round_trips=round_trips,
        rounds=rounds,
        peer=peer.value if peer else None,
    )
    with out.working("measuring a chain of brokers") as report:
        result = run(plan, report)
    out.document(result)
    if not json:
        out.table(*chain_table(result), figures=True)
        _doubt(out, [result.stolen_share])


@app.command("matching", epilog="Example: labctl bench matching --subscriptions 100000 --json")
def matching(
    subscriptions: Annotated[int, typer.Option(min=1, help="In the index.")] = 100_000,
    events: Annotated[int, typer.Option(min=1, help="To match; all different.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Of subscriptions and events.")] = 1,
    json: Json = False,
) -> None:
    """Measure what one next-hop decision costs with many subscriptions, and with 100 of them.

    Also what it costs to insert one, and how much memory each takes.
    """
    from labctl.bench.matching import run
    from labctl.bench.view import matching_table

    out = Output(json)
    with out.working(f"measuring decisions among {subscriptions} subscriptions") as report:
        result = run(subscriptions=subscriptions, events=events, seed=seed, report=report)
    out.document(result)
    if not json:
        out.table(*matching_table(result), figures=True)


@app.command("transactions", epilog="Example: labctl bench transactions --protocol s-tx --json")
def transactions(
    protocol: Annotated[
        list[TxProtocol] | None, typer.Option(help="Only this one; may be given several times.")
    ] = None,
    transactions: Annotated[int, typer.Option(min=10, help="In each round, one after the other.")] = 500,
    rounds: Annotated[
        int, typer.Option(min=1, help="Of which the median counts; disturbed ones are taken again.")
    ] = 3,
    regular: Annotated[bool, typer.Option(help="Also regular events beside S-TX transactions.")] = True,
    json: Json = False,
) -> None:
    """Measure dispatching transactions on three brokers, beside what bare relays need for the same crossings."""
    from labctl.bench.transactions import run
    from labctl.bench.view import transactions_table

    out = Output(json)
    chosen = [p.value for p in protocol] if protocol else list(PROTOCOLS)
    with out.working("measuring transactions") as report:
        results = run(chosen, transactions, rounds, regular, report)
    out.document(results)
    if not json:
        out.table(*transactions_table(results), figures=True)
        _doubt(out, [result.stolen_share for result in results])


@app.command("history", epilog="Example: labctl bench history --protocol s-tx --json")
def history(
    protocol: Annotated[TxProtocol, typer.Option(help="Of the transactions.")] = TxProtocol[D_TX],
    transactions: Annotated[int, typer.Option(min=10, help="In each round, one after the other.")] = 500,
    rounds: Annotated[int, typer.Option(min=1, help="Of which the median counts.")] = 5,
    json: Json = False,
) -> None:
    """Measure what it costs that every node writes down what happens, at each level of detail."""
    from labctl.bench.history_cost import run
    from labctl.bench.view import history_table

    out = Output(json)
    with out.working("measuring transactions with and without a history") as report:
        results = run(protocol.value, transactions, rounds, report)
    out.document(results)
    if not json:
        out.table(*history_table(results), figures=True)


@app.command("durability", epilog="Example: labctl bench durability --peer nats --peer mosquitto --json")
def durability(
    transactions: Annotated[int, typer.Option(min=10, help="Of each protocol, in each round.")] = 300,
    events: Annotated[int, typer.Option(min=1, help="Sent in each round.")] = 300_000,
    rounds: Annotated[
        int, typer.Option(min=1, help="Of which the median counts; disturbed ones are taken again.")
    ] = 3,
    subscriptions: Annotated[
        int, typer.Option(min=0, help="Of a broker that is killed and started again; 0: none is.")
    ] = 100_000,
    peer: Annotated[
        list[StoringPeer] | None,
        typer.Option(help="Also publications beside a broker of this kind; may be given several times."),
    ] = None,
    publish_s: Annotated[
        float,
        typer.Option(
            min=0.05, max=10, help="How long each publisher beside a peer publishes, in each round."
        ),
    ] = 1.0,
    json: Json = False,
) -> None:
    """Measure what it costs that brokers can be killed, and how soon one goes on.

    Transactions and regular events through three brokers without durability, with a journal that outlives the
    process (os), and with one that is synced before anything leaves (fsync), in turn on one disk. Beside a peer:
    publications to one broker, each counted when it is acknowledged, and how often the disk is flushed for it.
    """
    from labctl.bench.durability import run
    from labctl.bench.view import durability_tables, promises

    out = Output(json)
    with out.working("measuring durable brokers") as report:
        beside = [one.value for one in peer or ()]
        result = run(transactions, events, rounds, subscriptions, beside, publish_s, report)
    out.document(result)
    if not json:
        for table in durability_tables(result):
            out.table(*table, figures=True)
        for sentence in promises(result.peers):
            out.say(sentence)
        stolen_shares = [row.stolen_share for row in result.transactions]
        _doubt(out, [*stolen_shares, *(row.stolen_share for row in result.peers)])


def _doubt(out: Output, stolen_shares: Sequence[float]) -> None:
    from labctl.bench.view import disturbance

    if sentence := disturbance(stolen_shares):
        out.say(sentence)
