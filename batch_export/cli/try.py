"""`try PKG:FACTORY|FILE|FOLDER [--input ...] [OVERRIDES]`: sweeps over a model straight from the command line.

The model and, if wanted, its inputs arrive as words; a child runs it and finds what they do not say. A config is made
of that below the outputs, where the verbs about the run find it again, and the sweep's exit code leaves.
"""
# ruff: noqa: N999  # the module is called as the verb is

from __future__ import annotations

from pathlib import Path

from batch_export.cli.arguments import VerbParser, add_config_dirs, config_words
from batch_export.cli.model_flags import add_model_flags, source_help
from batch_export.sweeps.described import described, keep_config
from batch_export.sweeps.model_words import name_of, request_of


def run(arguments: list[str]) -> int:
    """Sweeps, and returns the exit code of the sweep."""
    from batch_export.cli.main import main  # lazy: it imports this module

    parser = VerbParser("try", "Sweeps over a model that is described here. Overrides may follow.")
    parser.add_argument("source", metavar="MODEL", help=source_help())
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="folder of runs (default: outputs)")
    parser.add_argument("-q", "--quiet", action="store_true", help="prints only what is not as expected")
    add_model_flags(parser)
    add_config_dirs(parser)
    asked, overrides = parser.parse_known_args(arguments)
    name = name_of(asked.source)
    config, found = described(request_of(name, asked.source, asked.input, asked.arg), asked.timeout)
    folder = keep_config(asked.outputs, {name: config}, {name: found.builder})
    if not asked.quiet:
        print("\n".join([*found.notes, f"{name} gives {'; '.join(found.outputs)}"]))
    given = {word.lstrip("+").partition("=")[0] for word in overrides}
    words = [f"matrix.models=[{name}]"]
    if "matrix.dynamic" not in given:
        words.append(f"matrix.dynamic=[{'static,full' if found.axes else 'static'}]")
    if asked.outputs != Path("outputs"):
        words.append(f"output.path='{asked.outputs}'")
    quiet = ["-q"] if asked.quiet else []
    return main(["batch-export", *quiet, *words, *overrides, *config_words(asked), "--config-dir", str(folder)])
