"""Verbs of the command line that have a file of their own: `run(arguments)` in each, an exit code comes out."""
