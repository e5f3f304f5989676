"""Real runs in the simulator: what the cores of real brokers were given drives the same cores here.

    reading.py      the recordings of a repetition, or why they cannot be replayed
    nodes.py        each core through its own arrivals; the first thing that its node did otherwise
    links.py        whether what left one broker is what came to the next
    repetition.py   which repetition is meant, and what came of all its brokers and links

May import: broker, broker.protocol, broker.routing, labctl, labctl.results.
"""
