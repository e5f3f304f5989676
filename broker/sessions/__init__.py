"""The sessions of a broker's peers, and what of them outlives its process; no socket: servers and the simulator run it.

    presence.py   who is here, away and gone
    greeting.py   who is let in, and what the others are told
    saved.py      everything that a broker must remember, and how it goes on from that

May import: broker, broker.gate, broker.journal, broker.protocol, broker.routing.
"""
