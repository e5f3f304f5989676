"""What a process says of itself: its log, its history, its vitals.

    log.py       the log of a node, one JSON object a line
    rotation.py  files of a log that are full
    history.py   what happened at a node, the material of the checks
    vitals.py    once a second: processor time, memory, how late the loop runs
    garbage.py   how often a process of ours looks for garbage

May import: broker.protocol, broker.transport.
"""
