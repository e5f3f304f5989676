"""Pure functions from DataFrame to DataFrame, one subject to a module."""
