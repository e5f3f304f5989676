"""The broker: a pure core that decides, and a process around it that serves.

    __main__.py     `python -m broker`: one broker process
    config.py       a broker's configuration: TOML text in, typed settings out
    core.py         the broker as a pure state machine: a message in, what must be done out
    recorded.py     what the core was given and what left, as lines of a history
    status.py       what a broker tells about its state
    protocols.py    all transaction protocols of a broker as one

    protocol/       every word on the wire
    matching/       which records contain this event
    routing/        the tables, and what the parts of a core share
    transactions/   D-TX and S-TX at a broker
    gate/           the order of effects: durable, sent, processed
    sessions/       the sessions of peers, and what of them outlives the process
    journal/        a log of entries that outlives its process and its machine
    transport/      frames over sockets, shared with clients
    node/           what a process says of itself
    serving/        sockets and timers around the core

May import: broker.matching, broker.protocol, broker.routing, broker.transactions, broker.transactions.dtx,
broker.transactions.stx.
"""
