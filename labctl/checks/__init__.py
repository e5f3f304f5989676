"""Histories in, verdicts out: pure functions that decide whether a run kept its promises.

    repetition.py   the one judgement on a repetition of an experiment: whole, done, and its promises kept
    judge.py        the checks on what real nodes have told
    history.py      what happened in a run, put in order
    properties.py   the properties of Definitions 3.1 to 3.4
    serial.py       who must have received a publication: operations without brokers and messages
    cycles.py       which transactions must be before which, and whether an order allows that
    anomalies.py    why no order explains what was delivered: Adya's names, and the operations of the cycle
    beside.py       regular publications beside transactions
    answers.py      what clients are told: votes, numbers, outcomes, and not too soon
    order.py        in which order a client did what it did, by its own word
    spaces.py       which operations touch an event, looked up and not asked one by one
    verdict.py      what a check says

    quiet/          what must hold when nothing is under way any more

May import: broker.matching, broker.protocol, broker.routing, client.scenarios, labctl.results.
"""
