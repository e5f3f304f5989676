"""Where a lab's hosts come from: one testbed file, whatever the machines are; and what is done on them.

    testbed.py        the file: which provider, which machines, how to reach them, how long they live
    timeouts.py       how long anything may take, all in one place
    testbed_file.py   the file that people write, and reading it

    labs/             a lab on disk
    providers/        acquiring hosts and giving them back; a provider knows its machines and nothing of brokers
    ssh/              connections to hosts
    remote/           deploying and running on a lab

May import: labctl.
"""
