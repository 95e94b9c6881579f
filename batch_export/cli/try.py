"""`try PKG:FACTORY --input ... [OVERRIDES]`: sweeps over a model that is described on the command line, with no file.

The builder and the inputs arrive as words; a config is made of them below the outputs, where the verbs about the run
find it again, and the sweep's exit code leaves.
"""
# ruff: noqa: N999  # the module is called as the verb is

from __future__ import annotations

import re
from pathlib import Path

from batch_export.cli.arguments import VerbParser, add_config_dirs, config_words
from batch_export.cli.model_words import add_model_words, config_of, yaml_of
from batch_export.digest import digest_value
from batch_export.report import run_folder as files


def run(arguments: list[str]) -> int:
    """Sweeps, and returns the exit code of the sweep."""
    from batch_export.cli.main import main  # lazy: it imports this module

    parser = VerbParser("try", "Sweeps over a model that is described here. Overrides may follow.")
    parser.add_argument("target", metavar="PKG:FACTORY", help="what returns the module, importable from here")
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="folder of runs (default: outputs)")
    parser.add_argument("-q", "--quiet", action="store_true", help="prints only what is not as expected")
    add_model_words(parser)
    add_config_dirs(parser)
    asked, overrides = parser.parse_known_args(arguments)
    config = config_of(asked.target, asked.input, asked.arg)
    name = re.sub(r"\W", "_", asked.target.replace(":", ".").rpartition(".")[2])
    text = yaml_of(name, config)
    folder = asked.outputs / files.TRIED / digest_value(text)[:12]  # one for each description: a run keeps what it had
    files.require_writable(folder / "model", "--outputs")
    files.write_whole(folder / "model" / f"{name}.yaml", text.encode())
    given = {word.lstrip("+").partition("=")[0] for word in overrides}
    words = [f"matrix.models=[{name}]"]
    if "matrix.dynamic" not in given:
        words.append(f"matrix.dynamic=[{'static,full' if 'axes' in config else 'static'}]")
    if asked.outputs != Path("outputs"):
        words.append(f"output.path='{asked.outputs}'")
    quiet = ["-q"] if asked.quiet else []
    return main(["batch-export", *quiet, *words, *overrides, *config_words(asked), "--config-dir", str(folder)])
