"""Where hosts come from: what every provider can do, and the providers.

    provider.py       what a provider can do
    provisioning.py   the commands' common path: make or complete a lab, look at it, remove it
    fitness.py        is a host fit for a lab? pure
    hosts.py          machines that exist already and answer SSH

    netns/            network namespaces of this machine
    openstack/        machines of an OpenStack cloud

May import: labctl, labctl.experiment, labctl.testbeds, labctl.testbeds.labs, labctl.testbeds.ssh, playbooks.
"""
