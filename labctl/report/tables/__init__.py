"""Functions from DataFrame to DataFrame, one subject to a module, and where their tables come from.

    session.py   a Spark session that says nothing
    schemas.py   the columns of every file of a result, written down
    ingest.py    one pass over the raw logs into Parquet
    latency.py   how long transactions took and how many there were
    rates.py     rates of regular events, and what transactions do to them
    nodes.py     what nodes sent and how busy they were

May import: broker.protocol, labctl, labctl.results.
"""
