"""What runs on hosts, where there is nothing but the standard library.

    agent.py         starts and watches processes on a host for a labctl that may be elsewhere
    disturbances.py  faults among the processes of a host, each at its time
    processes.py     processes of this machine, told apart from later ones with the same pid
    ports.py         free ports to listen on
    machine.py       what a machine is, and what was taken from it meanwhile
    launcher.py      starts processes that outlive us, and says why one ended
    whole_lines.py   which lines count of a file whose writer may have been killed

May import: labctl.
"""
