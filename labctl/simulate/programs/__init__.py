"""What simulated clients do, and random programs.

    programs.py   programs as data
    generate.py   random programs, one from a seed
    windows.py    random programs that aim at narrow windows
    narrow.py     the same, in who is where, who overtakes whom, and who wants whose id
    variants.py   a generated program under other conditions
    carried.py    programs on links that carry frames over connections
    durable.py    programs whose brokers keep journals, and crash
    resting.py    random programs about what is over: undone again, timed out, forgotten
    maker.py      the parts that random programs are made of
    delays.py     families of delays
    swarm.py      every seed a world of its own: its delays, its mix of operations, its faults

May import: broker.protocol, client.core.
"""
