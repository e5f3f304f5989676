"""The tables of a broker, and what the parts of its core share; pure.

    tables.py         where advertisements, subscriptions and publications go: SRT and PRT together
    srt.py            the subscription routing table: who may publish what
    prt.py            the publication routing table: who wants what
    membership.py     who is in the overlay: brokers, and clients (the CRT)
    settling.py       `settled()`: a wave behind everything that was sent before it
    compaction.py     records without effect leave the tables
    retirement.py     what a transaction has written, until all brokers have committed it
    state.py          what the parts of a core share
    ready.py          what a handler of the core answers
    joining.py        clients that join and leave, brokers that make themselves known
    publications.py   where publications go: one decision for many
    regular.py        regular adv, uadv, sub and usub

May import: broker.matching, broker.protocol.
"""
