"""The use cases of Section 1, a module each, and finding them by name.

    dispatching.py     use case 1: instances of a process are handed to agents, one by one
    consolidation.py   use case 2: a consolidator takes instances over from the agents that have them
    by_name.py         scenarios by name, those of others included
    disruption.py      what transactions do to regular events: a scenario with load beside it

May import: broker.protocol, client.core, client.scenarios.
"""
