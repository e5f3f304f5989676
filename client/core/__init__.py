"""The client without I/O: what runs over asyncio and in the simulator alike.

    advertised.py     what a client advertises, in the order of its edge broker
    session.py        what a client has advertised, what it waits for, what has arrived
    verbs.py          what a program can ask of a client
    port.py           what a client's transactions need from whatever runs them
    transactions.py   D-TX and D-TX_NI: what a client coordinates, and what it takes part in
    frames.py         the operations of one client in a D-TX transaction
    plans.py          S-TX: plans, their coordinator, and their participants
    outcomes.py       how a transaction ended, as far as its coordinator knows
    errors.py         what can go wrong for a program; one type per thing to be done about it

May import: broker.matching, broker.protocol.
"""
