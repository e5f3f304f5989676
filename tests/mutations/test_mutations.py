"""The checks are tested: every planted fault is caught by simulation, or does no harm for a stated reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from broker.protocol.vocabulary import Protocol
from labctl.simulate import runner
from labctl.simulate.programs.generate import GENERATORS
from labctl.simulate.programs.variants import Variant, generate
from tests.mutations.catalogue import (
    CAUGHT,
    HARMLESS,
    MODULES,
    PATIENCE,
    SCHEDULED,
    Caught,
    Harmless,
    Scheduled,
)
from tests.mutations.patching import Mutation, rule_of
from tests.mutations.schedules import Faults

pytestmark = pytest.mark.slow

HARMLESS_SEEDS = 40
STEPS_MAX = 20_000
"""A fault can keep a world busy for ever; no clean run of these programs comes near."""


@contextmanager
def planted(mutation: Mutation) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "STEPS_MAX", STEPS_MAX)
        mutation(patch)
        yield


def judged(generator: str, seed: int, protocol: Protocol, restart: float = 0.0) -> Faults:
    if restart:
        program = generate(generator, protocol, seed, Variant(restart=restart))
    else:
        program = GENERATORS[generator](seed, [protocol])
    try:
        return runner.simulate(program).faults
    except Exception as error:  # noqa: BLE001 a broker that falls over is caught, too
        return [("exception", repr(error))]


def name_of(case: Caught | Scheduled | Harmless) -> str:
    name = case.mutation.__name__
    return name if isinstance(case, Scheduled) else f"{name}-{case.protocol}"


@pytest.mark.parametrize("case", CAUGHT, ids=name_of)
def test_a_planted_fault_is_caught_by_a_random_schedule(case: Caught) -> None:
    for seed in range(case.seed, case.seed + PATIENCE):
        with planted(case.mutation):
            faults = judged(case.generator, seed, case.protocol, case.restart)
        if case.property in {property_ for property_, _ in faults}:
            assert judged(case.generator, seed, case.protocol, case.restart) == []
            return
    pytest.fail(f"not caught by {case.generator} from {case.seed} on: {rule_of(case.mutation)}")


@pytest.mark.parametrize("case", SCHEDULED, ids=name_of)
def test_a_planted_fault_is_caught_by_a_schedule_to_order(case: Scheduled) -> None:
    assert case.schedule() == []
    with planted(case.mutation):
        faults = case.schedule()
    assert case.property in {property_ for property_, _ in faults}


@pytest.mark.parametrize("case", HARMLESS, ids=name_of)
def test_a_planted_fault_that_does_no_harm_is_not_caught(case: Harmless) -> None:
    with planted(case.mutation):
        for generator in case.generators:
            for seed in range(HARMLESS_SEEDS):
                assert judged(generator, seed, case.protocol, case.restart) == [], (
                    generator,
                    seed,
                    case.reason,
                )


def test_every_planted_fault_is_in_the_catalogue_once_or_more_and_names_its_rule() -> None:
    written = {
        value
        for module in MODULES
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", "") == module.__name__
        if name.islower() and not name.startswith("_")
    }
    listed = {case.mutation for case in (*CAUGHT, *SCHEDULED, *HARMLESS)}
    assert listed == written
    assert all(rule_of(mutation) for mutation in listed)
    assert len({case.mutation for case in (*CAUGHT, *SCHEDULED)}) >= 25
    assert all(case.reason for case in HARMLESS)
