"""What must hold when nothing is under way any more; judged from brokers as they are, so in the simulator only.

    tables.py    whether the tables of brokers agree, and nothing is left behind in them

May import: broker.matching, broker.protocol, broker.routing, labctl.checks.
"""
