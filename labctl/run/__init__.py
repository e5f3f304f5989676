"""One repetition: its processes, wherever they are.

    runner.py     overlay up and proven, warm-up, the counted part, everything kept, all stopped
    crew.py       the processes of one repetition, brokers and clients
    places.py     where they run: hosts with an agent each, or this machine
    station.py    our end of the line to the agent of one host
    observer.py   asking the brokers of a run, through a process that runs among them

May import: client.scenarios, labctl, labctl.checks, labctl.experiment, labctl.host, labctl.overlay,
labctl.results, playbooks.
"""
