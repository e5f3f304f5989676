"""One repetition: its processes, wherever they are.

    runner.py     overlay up and proven, played, everything kept, all stopped
    play.py       from ready to the last word: what coordinators are told, and what they tell
    crew.py       the processes of one repetition, brokers and clients
    faulting.py   the faults of a repetition: what agents are told, and what is written down
    places.py     where they run: hosts with an agent each, or this machine
    station.py    our end of the line to the agent of one host
    observer.py   asking the brokers of a run, through a process that runs among them

May import: client.scenarios, labctl, labctl.checks, labctl.experiment, labctl.faults, labctl.host, labctl.overlay,
labctl.results, playbooks.
"""
