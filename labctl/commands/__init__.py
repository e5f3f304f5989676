"""The commands of `labctl`, a module for each group: options in, a call, and what it returns shown."""
