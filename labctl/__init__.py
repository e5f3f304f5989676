"""The lab in a command, `labctl`: what its rooms build on, and the entry points on top of them.

    cli.py          the `labctl` command, and where an error becomes an exit code
    demo.py         `make demo`
    exits.py        exit codes, and the error that carries one
    output.py       the one place that knows whether a person or a program is reading
    yamlfile.py     YAML at the door: values that remember file and line
    topology.py     which brokers there are and who is linked to whom: always one tree
    paths.py        where things are: the project's files, and what labctl keeps on a machine
    locks.py        one labctl at a time
    retry.py        looking again, and trying again, for a limited time
    workers.py      processes of a benchmark
    checkup.py      one finding about a machine or a testbed
    yamlfaults.py   what is wrong in a file that people write, its line and the nearest word

    host/           what runs on hosts
    overlay/        brokers on this machine
    experiment/     from the file of an experiment to what each client is told
    faults/         faults that happen while an experiment is measured
    results/        the folder of a result
    run/            one repetition
    conduct/        a whole run
    testbeds/       where the hosts of a lab come from, and what is done on them
    simulate/       the same cores under a simulated network and clock
    checks/         histories in, verdicts out
    bench/          how fast the broker is, beside the limit of the machine
    report/         from a result to answers
    commands/       the commands of `labctl`

May import: broker.node, broker.protocol.
"""
