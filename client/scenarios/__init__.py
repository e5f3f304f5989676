"""The scenarios of Section 1, each written once: over TCP (`python -m client`), and in a simulated overlay."""
