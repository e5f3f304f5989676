"""The order of effects, whatever they are, and what must not begin yet; no socket, no core, no clock.

    gate.py      the one door: entries durable, then sends, then `processed`
    holding.py   frames that wait because a destination of their source is full

May import: broker.protocol.
"""
