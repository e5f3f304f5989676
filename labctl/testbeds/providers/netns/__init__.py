"""Hosts without a cloud: network namespaces of this machine, with an address, a home and an sshd each.

    commands.py   what `ip`, `unshare` and `sshd` are told: pure, lists of words
    machine.py    running them, and looking at what there is
    provider.py   acquire, inspect, release

A host is a named network namespace, a veth pair to the lab's bridge, and one process tree whose first
process is sshd: it has its own process numbers, mounts, host name and an empty home. When the first process
is killed, the kernel kills all others. Only what the lab's journal has recorded is touched.

May import: labctl, labctl.host, labctl.testbeds, labctl.testbeds.labs, labctl.testbeds.providers,
labctl.testbeds.ssh.
"""
