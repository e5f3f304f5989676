"""The scenarios of Section 1, each written once: over TCP (`python -m client`), and in a simulated overlay.

    catalogue.py    approaches by name, and modules of others
    stage.py        what the roles of a scenario share: who plays, what they say, what runs them
    roles.py        members do what they are asked, one coordinator asks
    attempts.py     what became of the transactions of a scenario
    load.py         regular events beside transactions
    cues.py         a coordinator that is told by lines on a pipe when to go on
    approaches.py   the table of approaches: families, labels, colours

    cases/          the use cases themselves, a module each

May import: broker.protocol, client.core.
"""
