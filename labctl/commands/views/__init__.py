"""How commands show what they have done.

    labs.py      labs: a bar per host while they come and go; plans, hosts, what remains
    overlay.py   the status of an overlay
    run.py       an experiment while it runs

May import: labctl, labctl.conduct, labctl.experiment, labctl.faults, labctl.overlay, labctl.run, labctl.testbeds.labs,
labctl.testbeds.providers.
"""
