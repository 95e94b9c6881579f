"""Files that explain an export: the exported program, and where the time went.

Arrives: a captured program or an exported model. Leaves: files in a folder, named by the time. Nothing else is written.
"""

from __future__ import annotations

import warnings
from datetime import datetime
from pathlib import Path

import torch

from batch_export.calling.users_line import users_level
from batch_export.errors import ExportWarning
from batch_export.exporter.program.program import ONNXProgram
from batch_export.words import class_and_line


def stamped(folder: Path, what: str) -> Path:
    """A path in the folder, which is made if needed; `what` ends the file's name."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"onnx_export_{datetime.now().strftime('%Y-%m-%d_%H-%M-%S-%f')}_{what}"


def dump_program(program: torch.export.ExportedProgram, folder: Path) -> tuple[Path | None, Path]:
    """Writes the exported program as `.pt2` (for `torch.export.load`) and as text.

    Returns:
        Both paths; the first is None, with a warning, where torch has no file format for the program.
    """
    path = stamped(folder, "exported_program.pt2")
    text = path.with_suffix(".txt")
    text.write_text(str(program), encoding="utf-8")
    try:
        torch.export.save(program, path)
    except OSError:
        raise
    except Exception as error:  # whatever its serialiser has no form for: a truth value of sizes among the outputs
        path.unlink(missing_ok=True)
        warnings.warn(
            f"the exported program is written as text alone, {text}: torch.export.save says {class_and_line(error)}",
            ExportWarning,
            stacklevel=users_level(),
        )
        return None, text
    return path, text


def write_profile(program: ONNXProgram, folder: Path) -> Path:
    """Writes seconds by stage, by pass of the optimiser and by torch operator as Markdown tables; returns the path."""
    lines = ["# Where the export's time went", "", "## By stage", "", "| stage | seconds |", "|---|---|"]
    lines += [f"| {stage} | {seconds:.4f} |" for stage, seconds in program.seconds.items()]
    if program.passes:
        lines += ["", "## By pass of the optimiser", "", "| pass | seconds |", "|---|---|"]
        lines += [f"| {one.name} | {one.seconds:.4f} |" for one in program.passes]
    lines += ["", "## By operator (translation)", "", "| operator | count | seconds |", "|---|---|---|"]
    for name, seconds in sorted(program.operator_seconds.items(), key=lambda entry: -entry[1]):
        count = program.operators.get(name, (0, ""))[0]
        lines.append(f"| {name} | {count or ''} | {seconds:.4f} |")
    path = stamped(folder, "profile.md")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
