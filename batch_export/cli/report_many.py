"""Words after `report` that are about more than one run's own files: `merge` and `world`.

Arguments arrive, exit codes leave.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from batch_export.cli.arguments import VerbParser, add_outputs
from batch_export.collections.registered import collection
from batch_export.errors import UsageError
from batch_export.record import Record
from batch_export.report import run_folder as files
from batch_export.report.formats import SUMMARIES, Subject, write
from batch_export.report.merged import Part, added, merged
from batch_export.report.runs import records_of, resolve_run
from batch_export.report.summary import summarise
from batch_export.report.world import About, markdown
from batch_export.report.world_page import page
from batch_export.runner.config_folders import folder_flags
from batch_export.runner.follow_up import REPRO_FOLDER
from batch_export.runner.surroundings import circumstances, read_surroundings, write_surroundings
from batch_export.sources.toolchain import distribution_version

_WORLD_SUFFIXES = (".md", ".html")
_OF_MACHINE = ("runner", "store.", "output.", "measure.", "baseline", "hydra")
_OF_CELLS = ("runner.shard", "runner.timeout_s", "runner.memory_gb", "hydra.searchpath")
"""Settings that say which cells there are, and what becomes of them."""
_PAGE_VERSIONS = ("batch_export", "torch", "onnxruntime", "transformers")


def merge(arguments: list[str]) -> int:
    """Writes the run that several runs make up, with its summary; `report` of its folder renders it.

    Raises:
        UsageError: a run is none, they do not fit together, a shard or a cell is missing, or the folder is not empty.
    """
    parser = VerbParser("report merge", "Puts the shards of a sweep together, as if one machine had run them all.")
    parser.add_argument("runs", nargs="+", help="folders of runs")
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="the merged run's folder, made here")
    parser.add_argument("--partial", action="store_true", help="merge them even where shards are missing")
    parser.add_argument(
        "--mixed", action="store_true", help="merge them even where versions or sources differ, which is told"
    )
    add_outputs(parser)
    asked = parser.parse_args(arguments)
    folder = asked.to.expanduser().absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        what = "not empty" if folder.is_dir() else "a file"
        raise UsageError(f"--to {asked.to} is {what}. Next step: name a folder that does not exist")
    parts = [
        Part(found, files.read_run(found), files.read_records(found), read_surroundings(found))
        for found in (resolve_run(word, asked.outputs) for word in asked.runs)
    ]
    whole = merged(parts, folder, partial=asked.partial, mixed=asked.mixed)
    for sentence in whole.doubts:
        print(sentence, file=sys.stderr)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"--to {asked.to} cannot be made ({error.strerror}). Next step: name another folder"
        ) from error
    files.write_run(folder, whole.spec, whole.cells, whole.command)
    files.write_records(folder, whole.records)
    if whole.made is not None:
        write_surroundings(folder, whole.made)
    records = records_of(folder)
    counts = added(files.read_counts(part.folder) for part in parts)
    summary = summarise(records, counts, whole.command, allow_flaky=whole.spec.runner.allow_flaky)
    write(Subject(folder, records, summary), SUMMARIES)
    print(folder)
    return 0


def world(arguments: list[str]) -> int:
    """Writes the table of architectures of a run, as Markdown to a file or the terminal, or as a page (`-o X.html`).

    Raises:
        UsageError: the run is none, or the file is neither of these.
    """
    parser = VerbParser("report world", "The table of architectures: shares with their denominators, failures, skips.")
    parser.add_argument("run", help="the run's folder, latest, or latest~1")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="X.md or X.html (default: the terminal)")
    add_outputs(parser)
    asked = parser.parse_args(arguments)
    suffix = asked.output.suffix.lower() if asked.output is not None else ""
    if asked.output is not None and suffix not in _WORLD_SUFFIXES:
        raise UsageError(
            f"-o {asked.output}: the table is written as Markdown or as a page. Next step: name a file that ends in "
            f"{' or '.join(_WORLD_SUFFIXES)}"
        )
    folder = resolve_run(asked.run, asked.outputs)
    records = records_of(folder)
    stored = files.read_run(folder)
    about = About(_versions(folder), _names(records), _chosen(stored.command, stored.spec.overrides))
    if asked.output is None:
        sys.stdout.write(markdown(records, about))
    elif suffix == ".html":
        files.write_asked(asked.output, page(records, about, _repros(folder, records, asked.output)).encode(), "-o")
    else:
        files.write_asked(asked.output, markdown(records, about).encode(), "-o")
    return 0


def _versions(folder: Path) -> dict[str, str]:
    """What the run was made with; this environment's own where the run does not say."""
    of_run = circumstances(folder).toolchain.versions
    return {name: of_run.get(name) or distribution_version(name) for name in _PAGE_VERSIONS}


def _chosen(command: str, overrides: Sequence[str]) -> str:
    """The command that takes the same cells and judges them alike, without what concerns one machine."""
    kept = [word for word in overrides if not _of_machine(word.lstrip("+~"))]
    return shlex.join(["python", "-m", "batch_export", *folder_flags(command), *kept])


def _of_machine(word: str) -> bool:
    return word.startswith(_OF_MACHINE) and not word.startswith(_OF_CELLS)


def _names(records: Sequence[Record]) -> dict[str, int]:
    """How many names each collection of the records has, those of packages that are not installed here left out."""
    found: dict[str, int] = {}
    for name in dict.fromkeys(record.cell.model.partition(":")[0] for record in records if ":" in record.cell.model):
        with contextlib.suppress(UsageError):
            found[name] = len(collection(name).names())
    return found


def _repros(folder: Path, records: Sequence[Record], page_file: Path) -> dict[str, str]:
    """Where the repros that were written lie, as the page names them."""
    found: dict[str, str] = {}
    for record in records:
        script = folder / REPRO_FOLDER / record.cell.name.replace("/", "_") / "repro.py"
        if script.is_file():
            found[record.cell.name] = quote(Path(os.path.relpath(script, page_file.resolve().parent)).as_posix())
    return found
