"""The way of messages through a node: the order of effects, links that outlive connections; no socket, core, clock.

    gate.py      the one door: entries durable, then sends, then `processed`
    transit.py   what arrives on links goes through the core, and on to its destinations
    outgoing.py  what is sent goes to its destinations, gathered for each; whoever is full is not fed on
    ledger.py    what a node was given, as entries of its journal
    recovery.py  a node goes on where its journal ends
    parties.py   whom it deals with: who decides, who owns it, who keeps its journal
    peer.py      a neighbour or client as its broker sees it, and what happens when it is slow
    channel.py   a link, and whatever connection carries it at present
    holding.py   frames that wait because a destination of their source is full
    cutter.py    the bodies of frames, cut into messages and put together from them
    clock.py     time as whoever runs it gives it

May import: broker.journal, broker.protocol.
"""
