"""Crashes of simulated machines, what is left after them, and what must be.

    disk.py       a disk in memory that loses what was not synced
    machine.py    the machine of a broker, and how its journal is kept there
    account.py    what must arrive on links, whoever crashes meanwhile

May import: broker.gate, broker.journal, broker.protocol, labctl.simulate.programs.
"""
