"""Faults injected into runs, one by one: who is blamed, and that nobody else notices."""
