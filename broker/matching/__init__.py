"""Which records contain an event: the matching index.

    index.py     which hops want this event: what clients want, minus what they took back
    table.py     records by the shape of their filters, found by the values that these ask for
    boxes.py     records with ranges: in piles, and in boxes where each is a bit
    buckets.py   one attribute's line of values, cut into buckets of records that reach into each
    holes.py     what a client has taken back, when that is much
    records.py   what is filed: records, and the clients that they belong to
    batch.py     events with the same attributes, column by column
    many.py      the answers of the index for many events at once
    space.py     what one client advertises, minus what it has taken back

docs/matching.md draws an example: what is filed where, and how an event is looked up.

May import: broker.protocol.
"""
