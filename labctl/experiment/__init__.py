"""An experiment, from its file to what each client is told.

    experiment.py         YAML to an `Experiment`, and the cells of its matrix
    selection.py          which cells are meant, and what of somebody else's code they need
    schedule.py           how often, in which order and from where cells are run; pure
    client_processes.py   who takes part, their command lines, and what they print; pure

May import: broker.protocol, client.scenarios, client.scenarios.cases, labctl, labctl.results.
"""
