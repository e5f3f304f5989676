"""Multi-client transactions at a broker: one module per protocol, pure like the rest of the core."""
