"""S-TX at a broker (Section 6, corrected): the steps of a plan wait for the steps before them; pure.

    machine.py      the door: messages of the protocol in, answers out
    execution.py    what of a plan has come, and what is still waited for
    planning.py     whether a plan can be carried out, and which steps a broker must wait for
    steps.py        steps on their way through a broker, once they need not wait
    registry.py     which transactions are open, and whose they are
    wellformed.py   whether a step makes sense by itself
    decisions.py    votes, commit, abort, and who has to hear of it

May import: broker.matching, broker.protocol, broker.routing, broker.transactions.
"""
