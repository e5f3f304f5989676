"""Multi-client transactions at a broker, pure like the rest of the core; the two protocols do not know each other.

    names.py     ids of transactions
    machine.py   what every protocol offers to the core
    dtx/         D-TX and D-TX_NI
    stx/         S-TX

May import: broker.matching, broker.protocol, broker.routing.
"""
