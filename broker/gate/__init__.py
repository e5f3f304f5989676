"""The way of messages through a node: the order of effects, links that outlive connections; no socket, core, clock.

    gate.py      the one door: entries durable, then sends, then `processed`
    transit.py   what arrives on links goes through the core, and on to its destinations
    peer.py      a neighbour or client as its broker sees it, and what happens when it is slow
    channel.py   a link, and whatever connection carries it at present
    holding.py   frames that wait because a destination of their source is full
    cutter.py    the bodies of frames, cut into messages and put together from them
    clock.py     time as whoever runs it gives it

May import: broker.protocol.
"""
