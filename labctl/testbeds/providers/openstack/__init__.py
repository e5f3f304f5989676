"""Machines of an OpenStack cloud, through openstacksdk.

    cloud.py       the connection, and errors in plain words
    kinds.py       the kinds of things that a lab has there: how each is marked, found and deleted
    choose.py      image, flavor and network, as the testbed file names them
    userdata.py    what a machine is told at its first boot
    plan.py        what would be created, and the quota for it
    inventory.py   the journal beside the listings of the cloud; and the one way to create something
    ground.py      what machines stand on: network, security group, server group
    machines.py    the machines themselves, in parallel
    release.py     giving all back, and looking whether it is gone
    examine.py     the checks of `labctl doctor --testbed`
    provider.py    all of this behind the interface of `labctl.testbeds.providers.provider`

May import: labctl, labctl.testbeds, labctl.testbeds.labs, labctl.testbeds.providers, labctl.testbeds.ssh.
"""
