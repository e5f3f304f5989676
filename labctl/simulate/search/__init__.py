"""Looking for schedules that go wrong, and for what is left after many.

    novelty.py    how different schedules were: what they have met that none before them had
    campaign.py   many seeds, on several cores, interrupted and resumed
    choices.py    a world in which somebody chooses what happens next
    explore.py    all schedules of small worlds
    soak.py       very many transactions in one world that lives long
    shrink.py     make a failing program smaller
    measure.py    what one dispatching transaction costs, in virtual time
    requests.py   what can be asked of the simulator

May import: broker, broker.matching, broker.protocol, broker.routing, broker.transactions.dtx,
broker.transactions.stx, labctl, labctl.checks, labctl.host, labctl.simulate, labctl.simulate.programs.
"""
