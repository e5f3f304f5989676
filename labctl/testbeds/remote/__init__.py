"""A lab's hosts at work: what they are brought, and who runs where; labctl's end of what `playbooks/` does.

    deploy.py     prepare and deploy, for all hosts of a lab
    bundles.py    what hosts are brought: packages and our code, named by their hashes
    wheels.py     compiled packages for a host's Python
    placing.py    which process goes to which host; pure
    places.py     the hosts of a lab as a place for the processes of a run
    dry.py        what a run would do on each host, in commands
    recorder.py   hosts that only write down what they are asked: a dry run

May import: labctl, labctl.conduct, labctl.experiment, labctl.run, labctl.testbeds, labctl.testbeds.labs,
labctl.testbeds.ssh, playbooks.
"""
