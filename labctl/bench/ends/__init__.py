"""Programs at the ends of a benchmark: what publishes and what counts.

    bare.py        bare ends of a broker chain, without the client library
    library.py     ends that use the client library, like any program
    relay.py       the bare limit: relays that decide nothing, and their ends
    confirmed.py   a publisher to a durable broker that counts what is acknowledged
    mosquitto.py   a peer: a chain of bridged Mosquitto brokers, or one that stores
    nats.py        a peer: a NATS server with a stream, and a bare publisher to it
    rabbitmq.py    a peer: RabbitMQ with a durable queue, and a bare publisher to it
    servers.py     brokers of others as processes
    disk.py        what the disk alone allows
    events.py      the events of the chain, the same for all of them
    meters.py      events per second at the last end, round trips at the first, acknowledgements
    roles.py       the clients of a dispatching transaction, as processes

May import: broker.protocol, broker.transport, client, client.core, client.scenarios, labctl,
labctl.host.
"""
