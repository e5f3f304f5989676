"""The format of a result folder: everything that writes or reads one does it here, or by the names from here.

    layout.py       names of files and folders, where a repetition lies, and which are finished
    problem.py      "this is no result, or a damaged one": the one error, whatever is read
    lines.py        lines of JSON, read strictly or as far as they can be
    documents.py    small files, here or anywhere that Spark reads
    reading.py      which folder is meant, and its run.json: what is a result, and of which version
    writing.py      a new result, its repetitions and its calibrations
    resuming.py     whether a run may go on in a result
    histories.py    the histories of a repetition, and the tables at its end, in memory
    accounts.py     what a repetition tells of itself, and what of it cannot be read
    provenance.py   what a run was made with: code, versions, machine

May import: broker.protocol, labctl, labctl.host.
"""
