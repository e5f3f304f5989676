"""A lab on disk: what somebody who comes back must know.

    lab.py       a lab and its hosts, as they are written down
    store.py     the folder of a lab: its state, its keys, its journal, and the lock that guards them
    journal.py   the write-ahead journal of what is created outside this machine's memory
    keys.py      SSH keys made by us: one for the lab, one for each host

May import: labctl, labctl.host, labctl.testbeds.
"""
