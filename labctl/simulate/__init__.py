"""The same cores, client sessions and scenarios under a simulated network and clock."""
