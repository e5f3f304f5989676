"""Crashes of simulated machines, and what is left after them.

    disk.py       a disk in memory that loses what was not synced

May import: broker.journal.
"""
