"""Benchmarks: what is claimed about speed, measured. Run from the repository's root: `python -m benchmarks.export`."""
