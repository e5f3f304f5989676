"""A log of entries that outlives its process and its machine; entries are bytes, and what they mean is not known here.

    folder.py     a data folder: open, replay, append, sync, snapshots
    opening.py    opening a data folder: refused, made, or tidied of what a crash has left
    making.py     the files of a data folder, written whole before they get their names
    identity.py   whose data folder it is, and that it is no copy
    contents.py   the names of the files in a data folder
    entries.py    entries and snapshots to bytes and back: numbers, checksums, torn tails, damage
    failures.py   what is wrong with a data folder, or has gone wrong with its disk, in sentences
    files.py      what the journal asks of a disk, and the points at which it can be killed
    graph.py      a pure state machine as bytes and back, for snapshots
    quota.py      a disk that is full sooner than it is
    disk.py       the disk of this machine; the only module here that touches files

May import: nothing of ours.
"""
