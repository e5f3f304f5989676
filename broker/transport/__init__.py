"""Links over sockets, the same for brokers and for clients.

    channel.py   channels with the loop's clock and the delay of their link
    stream.py    one connection: bytes to whole frames
    dial.py      dialling a peer, and the pauses between two attempts
    delayed.py   what is to be sent is held until its emulated delay has passed
    timer.py     a one-shot timer finer than the event loop's own

May import: broker.gate, broker.protocol.
"""
