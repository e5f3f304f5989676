"""D-TX and D-TX_NI at a broker (Section 4, corrected): each broker takes part in the vote; pure.

    machine.py      the door: messages of the protocol in, answers out
    context.py      an open transaction at one broker, and what is left of one that has ended
    operations.py   operations on their way through a broker
    view.py         what an isolated transaction sees: the committed tables, and what it wrote itself
    order.py        in which order transactions vote and commit
    decisions.py    how a transaction ends: merged, or forgotten

May import: broker.matching, broker.protocol, broker.routing, broker.transactions.
"""
