"""Asking brokers about themselves.

    monitor.py    the status of one broker
    probe.py      proof that an overlay is up: an event through every link, in both directions
    observer.py   `python -m client.asking.observer`: asks for somebody who cannot reach the brokers

May import: broker.protocol, broker.transport, client, client.core.
"""
