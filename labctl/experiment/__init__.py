"""An experiment, from its file to what each client is told.

    cell.py               one point of the matrix, and the delays of its links; pure
    experiment.py         YAML to an `Experiment`, and the cells of its matrix
    faulted.py            what faults may happen to in its cells, and the plan of each repetition; pure
    selection.py          which cells are meant, and what of somebody else's code they need
    schedule.py           how often, in which order and from where cells are run; pure
    client_processes.py   who takes part, their command lines, and what they print; pure

May import: broker.protocol, client.scenarios, client.scenarios.cases, labctl, labctl.faults, labctl.results.
"""
