"""`plan [OVERRIDES]`: the cells that a sweep would run, without running them, and why others are skipped."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from batch_export.cli.arguments import VerbParser, add_config_dirs
from batch_export.config.compose import Composed, compose_and_call
from batch_export.nouns import counted
from batch_export.report.expectations import stale_exclusions
from batch_export.sweeps.planned import planned_cells


def run(arguments: list[str]) -> int:
    """Prints a line for each cell; 0 when the configuration can be meant."""
    parser = VerbParser("plan", "The cells that a sweep would run. Overrides may follow.")
    add_config_dirs(parser)
    parser.parse_known_args(arguments)  # for `--help`; all words are for the configuration
    return compose_and_call(_plan, arguments, leave_no_trace=True)


def _plan(composed: Composed) -> int:
    from batch_export.store import require_own_format  # lazy: what needs no store does without it

    spec, cells = planned_cells(composed)
    require_own_format(Path(spec.store_path).expanduser())
    for item in cells:
        print(f"{item.cell.name}  skip: {item.skip}" if item.skip else item.cell.name)
    running = [item for item in cells if not item.skip]
    captures = {item.cell.capture for item in running}
    models = {item.cell.model for item in running}
    print(
        f"{counted(len(cells), 'cell')}: {len(running)} would run ({counted(len(models), 'model')}, "
        f"{counted(len(captures), 'capture')}), {len(cells) - len(running)} skipped"
    )
    for reason, count in Counter(item.skip for item in cells if item.skip).most_common():
        print(f"  {count} skipped: {reason}")
    for sentence in stale_exclusions(spec):
        print(f"stale exclusion: {sentence}")
    for sentence in composed.hidden(spec):
        print(sentence)
    return 0
