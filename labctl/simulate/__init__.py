"""The same cores, client sessions and scenarios under a simulated network and clock.

    clients.py    a client of a simulated overlay: the verbs over virtual time
    world.py      an overlay under a simulated network and clock; one seed is one schedule
    linked.py     a world in which links carry frames over connections that are lost and restored
    nodes.py      what has links in such a world: brokers' processes, clients' carriers
    connections.py  connections over virtual time, and what is lost with them
    watched.py    a broker's core, with an account of what goes in and out
    crashing.py   a world in which brokers crash, and go on where their journals end
    tasks.py      coroutines without an event loop
    epilogue.py   the last act of every schedule: what clients may publish when all is over, and whom it reaches
    stage.py      the scenarios of `client.scenarios` in a simulated overlay
    runner.py     run a program in a world, and judge it
    snapshot.py   the state of brokers and clients as plain values

    crashes/      crashes of simulated machines, what is left after them, and what must be
    programs/     what simulated clients do
    recorded/     real runs, whose arrivals drive the same cores
    search/       looking for schedules that go wrong
    views/        a schedule as people look at it

May import: broker, broker.gate, broker.journal, broker.matching, broker.protocol, broker.routing, broker.sessions,
client.core, client.scenarios, client.scenarios.cases, labctl.checks, labctl.checks.quiet, labctl.simulate.crashes,
labctl.simulate.programs.
"""
