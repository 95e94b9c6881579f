"""`stop`: ends the server that stays between commands (`runner.keep_alive`).

A command that it serves at that moment goes on, since its children hang on the command alone. Exit code 0, also when no
server runs.
"""

from __future__ import annotations

from batch_export.cli.arguments import VerbParser
from batch_export.runner.staying.client import stop


def run(arguments: list[str]) -> int:
    """Ends it, and says which process it was."""
    parser = VerbParser("stop", "Ends the server that runner.keep_alive has left; a run that uses it goes on.")
    parser.parse_args(arguments)
    pid = stop()
    print("no server stays between commands" if pid is None else f"ended the server that stayed, process {pid}")
    return 0
