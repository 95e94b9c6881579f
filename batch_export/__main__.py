"""`python -m batch_export`. Kept light: child processes import this module again before they do anything else."""

from __future__ import annotations

import sys


def main() -> int:
    """Runs the command line and returns the exit code."""
    try:
        from batch_export.cli.main import main as command_line  # lazy: children import this module again
    except KeyboardInterrupt:  # before anything has begun; afterwards the command line says it
        print("interrupted", file=sys.stderr)
        return 130
    return command_line(sys.argv)


if __name__ == "__main__":
    sys.exit(main())
