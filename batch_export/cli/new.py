"""`new NAME --from PKG:FACTORY|FILE|FOLDER [--input ...]`: runs a model of your own once, and writes its config.

A model and, if wanted, its inputs arrive as words; a child runs it and finds the rest. `DIR/model/NAME.yaml`
leaves, to be looked at and kept, and a builder beside it where nothing that exists can be the target. A file that is
there stays as it is.
"""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path

from batch_export.cli.arguments import VerbParser
from batch_export.cli.model_flags import add_model_flags, source_help
from batch_export.errors import UsageError
from batch_export.report import run_folder as files
from batch_export.runner.probe import probe
from batch_export.stages.probe_request import builder_module
from batch_export.sweeps.model_words import request_of
from batch_export.sweeps.model_yaml import config_of, require_name, yaml_of


def run(arguments: list[str]) -> int:
    """Writes the file, and says what to type next."""
    parser = VerbParser("new", "Runs a model of your own once, and writes its config: conf/model/NAME.yaml.")
    parser.add_argument("name", help="what the model is called")
    parser.add_argument("--from", dest="source", required=True, metavar="MODEL", help=source_help())
    parser.add_argument("--to", type=Path, default=Path("conf"), metavar="DIR", help="config folder (default: conf)")
    add_model_flags(parser)
    asked = parser.parse_args(arguments)
    require_name(asked.name)
    path: Path = asked.to / "model" / f"{asked.name}.yaml"
    builder = Path(f"{builder_module(asked.name)}.py")
    _refuse_existing(path)
    _require_room(path.parent)
    found = probe(request_of(asked.name, asked.source, asked.input, asked.arg), asked.timeout)
    text = yaml_of(asked.name, config_of(found), found.outputs, found.notes)
    if found.builder:
        _refuse_existing(builder)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{path.parent} cannot be made ({error.strerror}). Next step: another one with --to"
        ) from error
    files.write_asked(path, text.encode(), "--to")
    if found.builder:
        files.write_asked(builder, found.builder.encode(), "--to")
        print(f"wrote {builder}, which its _target_ names")
    print(f"wrote {path}:\n\n{text}")
    dynamic = "[static,full]" if found.axes else "[static]"
    words = ["--config-dir", str(asked.to), f"matrix.models=[{asked.name}]", f"matrix.dynamic={dynamic}"]
    print(f"Next:\n  python -m batch_export {shlex.join(words)}")
    return 0


def _require_room(folder: Path) -> None:
    """Refuses a folder that cannot be made or written to, before the model is run; nothing is left behind."""
    there = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be made or written to ({there}: {error.strerror}). Next step: another one with --to"
        ) from error


def _refuse_existing(path: Path) -> None:
    if path.exists():
        raise UsageError(f"{path} is there already. Next step: take another name, or another folder with --to")
