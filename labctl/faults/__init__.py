"""Faults that happen while an experiment is measured: a plan that simulator and runs both read.

    plan.py      what happens when, and to which node or link; pure
    written.py   the part `faults:` of an experiment's file, and what is wrong with it; pure
    stage.py     what faults may happen to in a cell, and why something is spared; pure
    drawn.py     random faults of a seed; pure
    steps.py     what is done on hosts for a plan, and when; pure
    done.py      what was done, as the hosts tell it; pure
    effects.py   what each fault did to transactions and regular events; pure

May import: labctl.
"""
