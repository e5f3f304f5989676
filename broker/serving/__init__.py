"""The process of a broker: sockets and timers around the pure core.

    server.py       sockets, sessions and timers of one broker
    peer.py         a neighbour or client on whatever socket it has at present
    forwarding.py   the path of messages, with a loop's time and a history
    monitors.py     who asks a broker about itself
    reception.py    what is said outside a link: greetings, goodbyes
    sessions.py     the sessions of its peers, with sockets, a log, and a limit for who is slow
    durability.py   a broker that can be killed: its data folder, what it goes on from, its snapshots
    impairment.py   links that are cut or slow on purpose
    recording.py    a core and links that write down what it takes to replay them

May import: broker, broker.gate, broker.journal, broker.node, broker.protocol, broker.routing, broker.sessions,
broker.transport.
"""
