"""A schedule as people look at it.

    console.py    what `labctl simulate` does and prints, a function for each of its modes
    describe.py   programs and messages as text
    diagram.py    a schedule as a space-time diagram
    recorded.py   what came of a real run that was replayed

May import: broker, broker.protocol, labctl, labctl.checks, labctl.results, labctl.simulate,
labctl.simulate.programs, labctl.simulate.recorded, labctl.simulate.search.
"""
