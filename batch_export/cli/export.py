"""`export MODEL... --dest DIR --depfile F`: ONNX files for a build: Make, Ninja and CMake call it and read its depfile.

Only files that pass are written. Files whose content is as it should be are left alone, so nothing that depends on
them is built again; the manifest, the build's target, is touched.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
from rich.console import Console

from batch_export.cli.arguments import VerbParser, add_config_dirs, config_words
from batch_export.cli.cache import parse_size
from batch_export.cli.completion import models
from batch_export.cli.exported_files import (
    MOST_IN_ONE,
    ExportedFile,
    damaged,
    in_one,
    listed,
    outdated,
    tell_dropped,
    write,
)
from batch_export.config.compose import Composed, compose_and_call
from batch_export.config.groups import ConfigGroups
from batch_export.digest import Digest
from batch_export.errors import RunError, UsageError
from batch_export.nouns import counted
from batch_export.record import Cell, Record
from batch_export.report import run_folder as files
from batch_export.report.progress import reporter_for
from batch_export.report.rows import without_runs
from batch_export.sources.closure import local_roots
from batch_export.sources.name_texts import name_of
from batch_export.sources.places import models_dir
from batch_export.spec import RunSpec
from batch_export.store import Store, open_store
from batch_export.store.entry import read_entry
from batch_export.sweeps.planned import planned_cells
from batch_export.words import one_line

MANIFEST = "manifest.json"
MANIFEST_VERSION = 1
"""Raised when the manifest changes incompatibly. 1 (2026-11): first."""

_ZOO = "batch_export.zoo/"


def run(arguments: list[str]) -> int:
    """Exports; 0 when every file is there, 1 when a model does not pass."""
    asked, rest = _parser().parse_known_args(arguments)
    models = [word for word in rest if "=" not in word and word[:1] not in "+-~"]
    overrides = [word for word in rest if word not in models]
    if not models:
        raise UsageError("export: no model is named. Next step: `export bert_tiny --dest build/models`")
    given = {word.lstrip("+").partition("=")[0] for word in overrides}
    words = [f"matrix.models=[{','.join(models)}]", *overrides]
    for key, value in (("measure.enabled", "false"), ("matrix.providers", "[cpu]")):
        if key not in given:
            words.append(f"{key}={value}")
    words += config_words(asked)
    return compose_and_call(lambda composed: _export(composed, asked), words, leave_no_trace=True)


def offers(before: Sequence[str]) -> Iterable[str]:
    """What may come next on the command line."""
    return models(before)


def _export(composed: Composed, asked: argparse.Namespace) -> int:
    from batch_export.runner.sweep import run_sweep  # lazy: joblib takes 0.4 s

    dest: Path = asked.dest.absolute()
    limit = min(parse_size(asked.limit, "--limit"), MOST_IN_ONE)
    spec, cells = planned_cells(composed, start=True)
    if len(spec.matrix.exporters) > 1:
        raise UsageError("export: choose one exporter, e.g. matrix.exporters=[core]")
    files.require_writable(dest, "--dest")
    for sentence in composed.hidden(spec):
        print(sentence, file=sys.stderr)
    store = open_store(Path(spec.store_path), tuple(map(Path, local_roots())), replace(spec.store, remote=""))

    def swept() -> list[Record]:
        with tempfile.TemporaryDirectory(prefix="batch_export-") as folder:
            reporter = reporter_for(Console(stderr=True, quiet=asked.quiet))
            result = run_sweep(
                replace(spec, output_path=folder), cells, reporter=reporter, run_folder=Path(folder), command="export"
            )
            return [without_runs(record) for record in result.records]  # they go with the folder

    records = swept()
    done = _placed(records, store)
    wanted = _wanted(done.values(), dest, all_parts=asked.single_file)
    if said := damaged(store, wanted.values()):
        print("\n".join(said), file=sys.stderr)
        records = swept()
        done = _placed(records, store)
        wanted = _wanted(done.values(), dest, all_parts=asked.single_file)
    failed = [record for record in records if not _passes(record)]
    bad = len(failed)
    for record in failed:
        why = one_line(record.message)
        print(f"{record.cell.name}: {record.verdict} {record.stage} {record.error_class}: {why}")
    before = listed(dest / MANIFEST)
    if asked.single_file:
        done = {made.path: in_one(made, store, dest, limit) for made in done.values()}
        wanted = outdated(done.values(), dest)
    write(store, dest, wanted)
    changed = sum(made.written for made in done.values()) + len(wanted)
    if asked.depfile is not None:
        _write_depfile(asked.depfile, dest / MANIFEST, _dependencies(records, spec, store, composed.groups))
    if bad or not done:
        print(f"{bad} of {len(records)} cells are not exported; {dest / MANIFEST} is not written")
        return 1
    manifest = _manifest(done[name] for name in sorted(done))
    path = dest / MANIFEST
    if not path.is_file() or path.read_bytes() != manifest:
        files.write_whole(path, manifest)
    else:
        os.utime(path)
    print(f"{dest}: {counted(len(done), 'file')}, " + (f"{changed} written" if changed else "up to date"))
    tell_dropped(dest, before - {name for made in done.values() for name in (made.path, *made.external)}, asked.prune)
    return 0


def _manifest(done: Iterable[ExportedFile]) -> bytes:
    content = {"files": [made.entry() for made in done], "schema_version": MANIFEST_VERSION}
    return msgspec.json.format(msgspec.json.encode(content)) + b"\n"


def _passes(record: Record) -> bool:
    return record.verdict in ("pass", "xpass") and record.onnx is not None


def _placed(records: Iterable[Record], store: Store) -> dict[str, ExportedFile]:
    """The files of the cells that pass, by their places at the destination."""
    made = (_file_of(record, store) for record in records if _passes(record))
    return {one.path: one for one in made}


def _wanted(made: Collection[ExportedFile], dest: Path, *, all_parts: bool) -> dict[str, tuple[Path, Digest]]:
    """The stored files that are about to be read: to be put into one file, all are."""
    if all_parts:
        return {name: (one.stored[name], digest) for one in made for name, digest in one.parts.items()}
    return outdated(made, dest)


def _file_of(record: Record, store: Store) -> ExportedFile:
    cell = record.cell
    key = next(action.key for action in record.actions if action.mnemonic == "Translate")
    entry = read_entry(store.entry_path(key))
    model = entry.result.model if entry is not None else None
    if model is None:
        raise RunError(f"The store has lost the file of {cell.name}. Next step: run the same command again")
    folder = _folder(cell)
    path, stored = f"{folder}/opset{cell.opset}.onnx", store.model_path(model)
    return ExportedFile(
        cell=cell,
        path=path,
        sha256=model.onnx,
        external={f"{folder}/{name}": digest for name, digest in model.external},
        stored={path: stored, **{f"{folder}/{name}": stored.parent / name for name, _ in model.external}},
    )


def _folder(cell: Cell) -> str:
    """The folder of a cell's file, which the other opsets share: no two cells of different axes have the same one.

    The provider changes nothing in a file, and there is one exporter only.
    """
    return "/".join(word for axis, word in cell.path.items() if axis not in ("opset", "provider", "exporter"))


def _dependencies(records: Sequence[Record], spec: RunSpec, store: Store, groups: ConfigGroups) -> list[Path]:
    """Sources that the children loaded, and the configs that the models were read from."""
    roots = [Path(root) for root in local_roots()]
    found: dict[Path, None] = {}
    for record in records:
        for action in record.actions:
            entry = read_entry(store.entry_path(action.key))
            for text, _ in entry.result.sources if entry is not None else ():
                name = name_of(text)
                path = models_dir() / name.removeprefix(_ZOO) if name.startswith(_ZOO) else _first(roots, name)
                found[path] = None
    for model in spec.matrix.models:
        for file in groups.files("model", model.name):
            found[file] = None
    return sorted(path for path in found if path.is_file())


def _first(roots: Sequence[Path], name: str) -> Path:
    return next((root / name for root in roots if (root / name).is_file()), Path(name))


def _write_depfile(path: Path, target: Path, dependencies: Sequence[Path]) -> None:
    """Make's syntax, as Ninja and CMake read it: `target: a b`, spaces escaped."""

    def escaped(item: Path) -> str:
        return str(item).replace("\\", "\\\\").replace(" ", "\\ ").replace("#", "\\#").replace("$", "$$")

    lines = " \\\n  ".join(escaped(item) for item in dependencies)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_whole(path, f"{escaped(target)}: {lines}\n".encode())


def _parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        "export", "Writes ONNX files for a build. Further words are models (names, globs, tags) and overrides."
    )
    parser.add_argument("--dest", type=Path, required=True, metavar="DIR", help="where the files go")
    parser.add_argument(
        "--depfile", type=Path, metavar="FILE", help="write what the files depend on, for Make or Ninja"
    )
    add_config_dirs(parser)
    parser.add_argument("--single-file", action="store_true", help="weights inside the file, where it can hold them")
    parser.add_argument(
        "--limit", default="2G", metavar="SIZE", help="with --single-file: larger ones keep their data beside them"
    )
    parser.add_argument("--prune", action="store_true", help="remove files of an earlier export that are gone from it")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    return parser
