"""What is done on hosts, step by step; change it as your hosts need it.

    steps.py     the vocabulary: a host, what can be done on it, and what comes back
    prepare.py   what is there: Python, disk, bundles of earlier deployments
    deploy.py    bring what is missing, and unpack it
    start.py     the agent, and the commands of brokers and clients that it starts
    stop.py      what an earlier run has left; and clearing away all that was brought
    collect.py   bring the files of a repetition home

A playbook is a generator. It yields steps (`steps.py`), gets the result of each back, and returns what it has
found out. So `labctl run experiment NAME --lab L --dry-run` can show every command for every host without
doing any of it, and the same lines are done over SSH by `labctl.testbeds.ssh.play`. Steps are plain commands for
the user's shell on the host; a host has Python 3.11 or later and sshd, and nothing else may be expected.

May import: nothing of ours.
"""
