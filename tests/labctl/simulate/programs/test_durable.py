"""Which programs have brokers that crash, and how."""

from __future__ import annotations

from labctl.simulate.programs.variants import CARRIED_SHARE, DURABLE_SHARE, Variant, generate


def test_a_share_of_the_seeds_has_journals_and_all_whose_brokers_are_to_crash() -> None:
    programs = [generate("skew", "d-tx", seed) for seed in range(1000)]
    share = sum(program.journals is not None for program in programs) / len(programs)
    assert 0.5 < share / (CARRIED_SHARE * DURABLE_SHARE) < 1.5
    assert all(not program.restarts for program in programs if program.journals is None)
    crashing = [generate("skew", "d-tx", seed, Variant(restart=0.5)) for seed in range(50)]
    assert all(program.journals is not None and program.window_bytes for program in crashing)


def test_brokers_crash_as_often_as_is_asked_for() -> None:
    for rate in (0.3, 3.0):
        programs = [generate("mixed", "d-tx", seed, Variant(restart=rate)) for seed in range(200)]
        brokers = sum(len(program.brokers) for program in programs)
        restarts = [restart for program in programs for restart in program.restarts]
        assert 0.7 * rate < len(restarts) / brokers < 1.3 * rate
        assert {restart.kind for restart in restarts} == {"crash", "kill", "fail"}
        assert any(restart.operations for restart in restarts)
        assert any(restart.again for restart in restarts)


def test_what_a_seed_does_otherwise_is_the_same_with_and_without_crashes() -> None:
    plain, crashing = generate("mixed", "d-tx", 5), generate("mixed", "d-tx", 5, Variant(restart=1.0))
    assert plain.transactions == crashing.transactions
    assert plain.homes == crashing.homes
