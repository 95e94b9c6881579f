"""sarif.json of a run: one result per defect and cell. Records arrive, text leaves."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from batch_export.findings.sarif import sarif_log
from batch_export.record import Record
from batch_export.report.clusters import diagnostic
from batch_export.report.wording import UNEXPECTED


def sarif_text(records: Iterable[Record], root: Path, command: str = "") -> str:
    """Returns the log of the unexpected records.

    Args:
        records: judged.
        root: sources below it are written relative to it.
        command: the run's command line.
    """
    found = [
        replace(diagnostic(record), place=_place(record, root)) for record in records if record.verdict in UNEXPECTED
    ]
    return json.dumps(sarif_log(found, root, command=command), indent=2) + "\n"


def _place(record: Record, root: Path) -> str:
    """The model's config: code-scanning services refuse results that are nowhere in the repository."""
    path = f"conf/model/{record.cell.model}.yaml"
    plain = not set(record.cell.model) & {"/", "\\"}
    return f"{path}:1" if plain and os.path.isfile(root / path) else ""
