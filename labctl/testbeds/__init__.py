"""Where a lab's hosts come from: one testbed file, whatever the machines are.

    testbed.py    the file: which provider, which machines, how to reach them, how long they live
    timeouts.py   how long anything may take, all in one place
    lab.py        a lab and its hosts, as they are written down
    store.py      the folder of a lab: its state, its keys, its journal, and the lock that guards them
    journal.py    the write-ahead journal of what is created outside this machine's memory
    keys.py       SSH keys made by us: one for the lab, one for each host
    provider.py   what a provider can do, and which ones there are
    steps.py      the commands' common path: a testbed and a size in, a lab out

The providers stand beside: `openstack/`, and one module for each of the others. A provider knows its
machines and nothing of brokers; what is done on hosts over SSH is not here either.
"""
