"""How fast the broker is, each figure beside the limit of this machine in the same run.

    chain.py          events and round trips through a chain of brokers
    transactions.py   what a transaction costs
    durability.py     what it costs that brokers can be killed
    peers.py          durable publications beside brokers of others
    recovery.py       how soon a broker goes on that was killed
    history_cost.py   what a history costs
    matching.py       what one next-hop decision costs
    bitset.py         a plain bitset index, the yardstick of `matching`
    rest.py           what a broker costs before anything happens
    rounds.py         rounds of a measurement, and whether the machine was ours meanwhile
    view.py           results as a person reads them

    ends/             the programs at the ends of a benchmark

May import: broker.gate, broker.journal, broker.matching, broker.protocol, broker.routing, broker.serving,
client.core, labctl, labctl.bench.ends, labctl.host, labctl.overlay, labctl.simulate, playbooks.
"""
