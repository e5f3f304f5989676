"""What a report leaves behind for people and programs.

    outputs.py    all of it: tables, summary, figures, the page
    figures.py    Figures 5 to 9 in the paper's form, and one for consolidation
    timelines.py  how repetitions with faults went on, each fault a band
    html.py       one self-contained page
    summary.py    one JSON document and one CSV table
    terminal.py   the short version

May import: client.scenarios, labctl, labctl.faults, labctl.report.judgement, labctl.report.tables, labctl.results.
"""
