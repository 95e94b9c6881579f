"""`new NAME --from PKG:FACTORY --input ...`: writes the config of a model of your own, to be looked at and kept.

The builder and the inputs arrive as words, `DIR/model/NAME.yaml` leaves. Nothing is imported or run; a file that is
there stays as it is.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from batch_export.cli.arguments import VerbParser
from batch_export.cli.model_words import add_model_words, config_of, yaml_of
from batch_export.errors import UsageError
from batch_export.report import run_folder as files


def run(arguments: list[str]) -> int:
    """Writes the file, and says what to type next."""
    parser = VerbParser("new", "Writes the config of a model of your own: conf/model/NAME.yaml.")
    parser.add_argument("name", help="what the model is called")
    parser.add_argument("--from", dest="target", required=True, metavar="PKG:FACTORY", help="what returns the module")
    parser.add_argument("--to", type=Path, default=Path("conf"), metavar="DIR", help="config folder (default: conf)")
    add_model_words(parser)
    asked = parser.parse_args(arguments)
    text = yaml_of(asked.name, config_of(asked.target, asked.input, asked.arg))
    path: Path = asked.to / "model" / f"{asked.name}.yaml"
    if path.exists():
        raise UsageError(f"{path} is there already. Next step: take another name, or another folder with --to")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{path.parent} cannot be made ({error.strerror}). Next step: another one with --to"
        ) from error
    files.write_asked(path, text.encode(), "--to")
    words = ["--config-dir", str(asked.to), f"matrix.models=[{asked.name}]", "matrix.dynamic=[static,full]"]
    print(f"wrote {path}. Next:\n  python -m batch_export {shlex.join(words)}")
    return 0
