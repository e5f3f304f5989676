"""Real runs in the simulator: what the cores of real brokers were given drives the same cores here.

    reading.py      the recordings of a repetition, or why they cannot be replayed
    nodes.py        each core through its own arrivals; the first thing that its node did otherwise
    links.py        whether what left one broker is what came to the next
    schedule.py     one order of all that the cores of a run were given
    world.py        all cores together, in that order
    judging.py      what happened there as histories, for the checks
    smaller.py      a run that broke a promise, with less in it
    repetition.py   which repetition is meant, and what came of all its brokers and links

May import: broker, broker.protocol, broker.routing, labctl, labctl.checks, labctl.results, labctl.simulate,
labctl.simulate.programs.
"""
