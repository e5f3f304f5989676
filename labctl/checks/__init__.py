"""Histories in, verdicts out: pure functions that decide whether a run kept its promises."""
