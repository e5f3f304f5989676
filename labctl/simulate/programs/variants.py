"""A generated program under other conditions: another overlay, more faults, slower links."""

from __future__ import annotations

from random import Random

from msgspec import Struct, structs

from broker.protocol.vocabulary import PROTOCOLS, Protocol
from labctl.simulate.programs.carried import carried
from labctl.simulate.programs.durable import durable
from labctl.simulate.programs.generate import GENERATORS, SPAN_S, tree
from labctl.simulate.programs.programs import Fault, Program, TxProgram, directed_links
from labctl.simulate.programs.swarm import swarmed

SLOW_SHARE = 0.3
CARRIED_SHARE = 0.1
"""Of the seeds: links carry frames there, which takes twice the time."""
DURABLE_SHARE = 0.5
"""Of those: brokers keep journals there, and crash."""
MIXED = "mixed"
"""All protocols in one overlay."""
PROTOCOL_CHOICES = (*PROTOCOLS, MIXED)


class Variant(Struct, frozen=True):
    """What is changed in what a generator makes."""

    brokers: int = 0
    """So many; 0: as many as the generator draws."""
    crash: float = 0.0
    """Probability with which each client crashes."""
    away: float = 0.0
    """Probability with which each client loses its connection for a while."""
    abort: float = 0.0
    """Probability with which each transaction is aborted by its coordinator."""
    slow_links: float = 1.0
    """Factor by which a part of the links is slower."""
    cut: float = 0.0
    """How often each link loses its connection; more than 0: links carry frames in every schedule, not in a few."""
    restart: float = 0.0
    """How often each broker crashes; more than 0: brokers keep journals in every schedule, not in a few."""
    swarm: bool = True
    """Each seed draws its own delays, mix of operations and faults; if not, all are as the generator makes them."""


PLAIN = Variant()


def protocols_of(choice: str) -> tuple[Protocol, ...]:
    return PROTOCOLS if choice == MIXED else tuple(p for p in PROTOCOLS if p == choice)


def generate(scenario: str, protocol: str, seed: int, variant: Variant = PLAIN) -> Program:
    """The program of a seed: the same for the same arguments."""
    program = GENERATORS[scenario](seed, protocols_of(protocol))
    if variant.swarm:
        program = swarmed(program, scenario)
    if structs.replace(variant, swarm=True) != PLAIN:
        program = _varied(program, variant, Random(f"{scenario} {protocol} {seed} {variant}"))
    random = Random(f"links {scenario} {protocol} {seed}")
    is_carried = not program.window_bytes and random.random() < CARRIED_SHARE
    if variant.cut or is_carried or (variant.restart and not program.window_bytes):
        program = carried(program, random, variant.cut)
    if variant.restart or (program.window_bytes and random.random() < DURABLE_SHARE):
        program = durable(program, random, variant.restart)
    return program


def _varied(program: Program, variant: Variant, random: Random) -> Program:
    if variant.brokers:
        program = _transplant(program, variant.brokers, random)
    transactions = tuple(_aborted(t, variant.abort, random) for t in program.transactions)
    program = structs.replace(program, transactions=transactions)
    program = _with_faults(program, variant, random)
    return _slowed(program, variant.slow_links, random)


def _transplant(program: Program, size: int, random: Random) -> Program:
    """The same clients on another tree."""
    brokers, links = tree(random, size)
    homes = {client: random.choice(brokers) for client in program.homes}
    slowness = {}
    if program.slowness:
        moved = structs.replace(program, brokers=brokers, links=links, homes=homes)
        for link in directed_links(moved):
            if random.random() < SLOW_SHARE:
                slowness[link] = 10 ** random.uniform(-1.5, 1.0)
    return structs.replace(program, brokers=brokers, links=links, homes=homes, slowness=slowness)


def _aborted(transaction: TxProgram, rate: float, random: Random) -> TxProgram:
    if transaction.aborts_after >= 0 or random.random() >= rate:
        return transaction
    return structs.replace(transaction, aborts_after=random.randint(0, len(transaction.body)))


def _with_faults(program: Program, variant: Variant, random: Random) -> Program:
    faults = list(program.faults)
    for client in program.homes:
        if random.random() < variant.crash:
            lost = random.choice((0, 0, 1, 2))
            faults.append(Fault("crash", client, 2 * SPAN_S * random.random(), lost))
        if random.random() < variant.away:
            faults.append(Fault("away", client, 2 * SPAN_S * random.random()))
    return structs.replace(program, faults=tuple(faults))


def _slowed(program: Program, factor: float, random: Random) -> Program:
    if factor == 1.0:
        return program
    slowness = dict(program.slowness)
    for link in directed_links(program):
        if random.random() < SLOW_SHARE:
            slowness[link] = factor * slowness.get(link, 1.0)
    return structs.replace(program, slowness=slowness)
