"""The same cores, client sessions and scenarios under a simulated network and clock.

    clients.py    a client of a simulated overlay: the verbs over virtual time
    world.py      an overlay under a simulated network and clock; one seed is one schedule
    linked.py     a world in which links carry frames over connections that are lost and restored
    nodes.py      what has links in such a world: brokers' processes, clients' carriers
    connections.py  connections over virtual time, and what is lost with them
    account.py    what must arrive on links, by the words of cores and clients alone
    choices.py    a world in which somebody chooses what happens next
    tasks.py      coroutines without an event loop
    epilogue.py   the last act of every schedule: what clients may publish when all is over, and whom it reaches
    stage.py      the scenarios of `client.scenarios` in a simulated overlay
    runner.py     run a program in a world, and judge it
    snapshot.py   the state of brokers and clients as plain values

    crashes/      crashes of simulated machines, and what is left after them
    programs/     what simulated clients do
    recorded/     real runs, whose arrivals drive the same cores
    search/       looking for schedules that go wrong
    views/        a schedule as people look at it

May import: broker, broker.gate, broker.matching, broker.protocol, broker.routing, client.core,
client.scenarios, client.scenarios.cases, labctl.checks, labctl.checks.quiet, labctl.simulate.programs.
"""
