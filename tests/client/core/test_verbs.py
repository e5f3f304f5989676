"""Which part of a client takes a message: what brokers send to clients, and what they only send each other."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest
from msgspec import structs

from broker.protocol import dtx, stx
from broker.protocol.vocabulary import PLANNED, PROTOCOLS
from broker.protocol.wire import TRANSACTION_TYPES, TransactionMessage
from labctl.simulate.programs.generate import GENERATORS
from labctl.simulate.programs.variants import Variant, generate
from labctl.simulate.runner import SimRun
from labctl.simulate.world import World


def test_every_message_of_a_transaction_has_its_id_and_belongs_to_one_protocol() -> None:
    assert set(get_args(TransactionMessage)) == TRANSACTION_TYPES
    assert all("tx" in {field.name for field in structs.fields(kind)} for kind in TRANSACTION_TYPES)
    assert {*get_args(dtx.DtxMessage)} > dtx.TO_CLIENT
    assert {*get_args(stx.StxMessage)} > stx.TO_CLIENT
    assert not {*get_args(dtx.DtxMessage)} & {*get_args(stx.StxMessage)}


@pytest.mark.parametrize(
    ("messages", "protocols"),
    [(dtx.TO_CLIENT, frozenset(PROTOCOLS) - PLANNED), (stx.TO_CLIENT, PLANNED)],
    ids=["dtx", "stx"],
)
def test_brokers_send_clients_what_their_messages_say_and_all_of_it(
    messages: frozenset[type], protocols: frozenset[str]
) -> None:
    sent: set[type] = set()
    for seed, scenario, protocol in product(range(4), GENERATORS, sorted(protocols)):
        run = SimRun(generate(scenario, protocol, seed, Variant(crash=0.2, abort=0.2)), traces=True)
        run.prepare()
        run.play()
        sent |= {type(each.message) for each in run.world.passages if each.target.startswith("client:")}
    assert sent & TRANSACTION_TYPES == messages


def test_a_message_between_brokers_means_nothing_to_a_client() -> None:
    world = World((), ["b1"])
    client = world.connect("A", "b1")
    world.run()
    for message in (dtx.Prepare("X/1/1"), stx.StepPrepare("X/1/1", "X", ()), stx.StepEcho("X/1/1", 1)):
        client.receive(message)
    world.run()
    assert (client.transactions.parts, client.plans.running) == ({}, {})
