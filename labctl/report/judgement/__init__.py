"""What numbers mean: estimates, claims, warnings.

    model.py      what a report knows in the end
    stats.py      means over repetitions, and how far to trust them
    claims.py     the paper's claims, judged on what was measured
    shapes.py     the expected shape of a result, as a small typed expression
    cost.py       how many messages a dispatching transaction should cost
    disturbed.py  repetitions with faults: what each fault did
    verdicts.py   the checks on every repetition's history
    compare.py    two results side by side
    origins.py    what was run where and with what
    warnings.py   why a result should not be believed, in sentences

May import: broker.protocol, client.scenarios, labctl, labctl.checks, labctl.experiment, labctl.faults, labctl.report.tables,
labctl.results.
"""
