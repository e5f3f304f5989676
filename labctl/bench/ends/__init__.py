"""Programs at the ends of a benchmark: what publishes and what counts.

    bare.py        bare ends of a broker chain, without the client library
    library.py     ends that use the client library, like any program
    relay.py       the bare limit: relays that decide nothing, and their ends
    mosquitto.py   the peer: a chain of bridged Mosquitto brokers
    events.py      the events of the chain, the same for all of them
    meters.py      events per second at the last end, round trips at the first
    roles.py       the clients of a dispatching transaction, as processes

May import: broker.protocol, broker.transport, client, client.core, client.scenarios, labctl,
labctl.host.
"""
