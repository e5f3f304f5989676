"""Brokers as processes of this machine.

    local.py        up, status, restart, down
    launch.py       starts broker processes and waits until they are proven up
    state.py        what is written down about an overlay, and the lock that guards it
    node_files.py   a broker's configuration as TOML
    doctor.py       is this machine fit for a local lab?

May import: broker.protocol, client.asking, labctl, labctl.host, playbooks.
"""
