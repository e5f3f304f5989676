"""A whole run: calibrations, repetitions in their order, resuming.

    conductor.py      runs what is not finished yet, and keeps what is
    calibrations.py   calibrations of BL-WAIT as artefacts: what one holds for, where it is kept
    wait_search.py    the smallest wait with which every transaction is routed right; pure
    wait_needed.py    how long each transaction of BL-WAIT really needed, from histories
    request.py        what is asked of a run or a calibration

May import: broker.protocol, client.scenarios, labctl, labctl.checks, labctl.experiment, labctl.faults, labctl.results,
labctl.run.
"""
