"""Every word on the wire, and what follows from the words alone.

    vocabulary.py   what all messages share: their base, kinds of operations, places in the order
    messages.py     greetings, joining and leaving, regular operations and publications, status
    dtx.py          the messages of D-TX and D-TX_NI
    stx.py          the messages of S-TX, and its plans
    wire.py         the union of all messages, their encoding and their framing
    filters.py      filters and events, and how two filters relate
    limits.py       what a client may send, at most
    hops.py         what lies at the other end of a link: a broker or a client
    address.py      `host:port`
    link.py         one end of a reliable FIFO link: numbering, flow control, resumption
    delay.py        when a message may leave a link whose delay is emulated
    events.py       the names of what stands in histories, and how much of it is kept

May import: nothing of ours.
"""
