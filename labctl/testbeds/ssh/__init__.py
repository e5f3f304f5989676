"""Connections to hosts, and what is done over them.

    login.py         logging in to one machine, whose key must be the one that we know
    connections.py   one connection per host, opened when first needed
    bastion.py       the one way to the hosts behind a bastion
    reach.py         does a host's sshd answer, with the key that we know?
    play.py          carries playbooks out on all hosts at once, or shows what would be done
    line.py          the line to an agent on a host

May import: labctl, labctl.run, labctl.testbeds, labctl.testbeds.labs, playbooks.
"""
