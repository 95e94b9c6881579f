"""`cache info|verify|gc|export|import`: looking after the store.

Arguments and overrides arrive (`store.path=...`), lines and an exit code leave. Nothing is executed.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from batch_export.cli.arguments import VerbParser, add_config_dirs, add_outputs, config_words
from batch_export.config.compose import Composed, compose_and_call
from batch_export.errors import UsageError
from batch_export.nouns import counted
from batch_export.report import run_folder as files
from batch_export.report.runs import resolve_run
from batch_export.report.terminal import folder_text
from batch_export.spans import span
from batch_export.steps import LOCAL
from batch_export.store import Store, open_store
from batch_export.store.audit import audit
from batch_export.store.bundle import export_tar, import_tar
from batch_export.store.collection import collect
from batch_export.words import nearest

WORDS = ("info", "verify", "gc", "export", "import")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)


def run(arguments: list[str]) -> int:
    """Carries out one cache command."""
    word = arguments[0] if arguments else ""
    if word in ("-h", "--help"):
        parser = VerbParser("cache", "Looks after the store; `cache COMMAND --help` says what a command takes.")
        parser.add_argument("command", choices=WORDS)
        parser.parse_args(arguments)
    if not word:
        raise UsageError(f"cache needs a command: {', '.join(WORDS)}. Next step: `cache info`")
    if word not in WORDS:
        near = nearest(word, WORDS, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(WORDS)}, e.g. `cache gc --max-size 10G`"
        raise UsageError(f"Unknown cache command {word!r} ({hint})")
    parser = VerbParser(f"cache {word}", f"cache {word}; overrides such as store.path=... may follow")
    if word == "gc":
        parser.add_argument("--max-size", help="least recently used results go first until the store fits, e.g. 10G")
        parser.add_argument("--older-than", help="results go that were last used longer ago, e.g. 30d, 12h")
    elif word in ("export", "import"):
        parser.add_argument("file", type=Path, help="the tar file")
    if word == "export":
        parser.add_argument("--run", help="only the results of this run, from its store: a folder, latest, latest~1")
        add_outputs(parser)
    add_config_dirs(parser)
    asked, overrides = parser.parse_known_args(arguments[1:])
    unknown = [name for name in overrides if name.startswith("-")]
    if unknown:
        raise UsageError(f"cache {word} takes no {unknown[0]}. Next step: `{parser.prog} --help`")
    if getattr(asked, "run", None) is not None:
        asked.run = resolve_run(asked.run, asked.outputs)
        overrides = [*_stores_of(asked.run, overrides), *overrides]
    work = _WORK[word](asked)

    def on_store(composed: Composed) -> int:
        folder = Path(composed.config.store.path).expanduser()
        return work(open_store(folder)) if word == "import" or folder.exists() else _without_store(word, folder)

    return compose_and_call(on_store, [*overrides, *config_words(asked)], leave_no_trace=True)


def offers(before: Sequence[str]) -> Iterable[str]:
    """What may come next on the command line."""
    return () if before else WORDS


def _info(asked: argparse.Namespace) -> Callable[[Store], int]:
    def work(store: Store) -> int:
        info = store.info()
        print(f"store    {folder_text(Path(info.path))}")
        print(f"actions  {sum(info.actions.values())}")
        for mnemonic, count in sorted(info.actions.items()):
            print(f"  {mnemonic:<10} {count}")
        print(f"blobs    {info.blobs}")
        print(f"models   {info.models}")
        print(f"size     {size_text(info.bytes)}")
        if info.quarantined:
            print(f"damaged  {info.quarantined} files in quarantine/ (log.jsonl there says what they were)")
        return 0

    return work


def _verify(asked: argparse.Namespace) -> Callable[[Store], int]:
    def work(store: Store) -> int:
        found = audit(store)
        for name in found.corrupted:
            print(f"damaged  {name}: moved to quarantine/; the next run that needs it makes it again")
        sound = counted(found.entries, "action result"), counted(found.files, "file"), size_text(found.bytes)
        print(f"sound    {', '.join(sound)}")
        if found.incomplete:
            print(f"partial  {found.incomplete} action results name files that are gone; they are executed again")
        if found.unnamed:
            print(f"unnamed  {found.unnamed} files that no result names; `cache gc` removes them")
        print(f"read in {found.seconds:.1f} s")
        return 0 if found.sound else 1

    return work


def _gc(asked: argparse.Namespace) -> Callable[[Store], int]:
    if asked.max_size is None and asked.older_than is None:
        raise UsageError(
            "cache gc needs the size to shrink to or an age, e.g. `cache gc --max-size 10G` or `--older-than 30d`"
        )
    limit = None if asked.max_size is None else parse_size(asked.max_size)
    age = None if asked.older_than is None else parse_age(asked.older_than)

    def work(store: Store) -> int:
        done = collect(store, limit, older_than_s=age)
        print(f"removed {done.removed_actions} action results, {size_text(done.removed_bytes)}")
        print(f"kept    {done.kept_actions} action results, {size_text(done.kept_bytes)}")
        return 0

    return work


def _export(asked: argparse.Namespace) -> Callable[[Store], int]:
    keys = None
    if asked.run is not None:
        keys = {action.key for record in files.read_records(asked.run) for action in record.actions}
        if not keys:
            raise UsageError(f"{asked.run} holds no record with an action. Next step: name the folder of a run")

    def work(store: Store) -> int:
        with store.in_use():
            done = export_tar(store, asked.file, keys, LOCAL)
        print(f"wrote {asked.file}: {done.entries} action results, {size_text(done.bytes)}")
        if done.left_out:
            print(f"left out {done.left_out}: latencies of this machine, and results that are incomplete or flaky")
        return 0

    return work


def _import(asked: argparse.Namespace) -> Callable[[Store], int]:
    def work(store: Store) -> int:
        with store.in_use():
            done = import_tar(store, asked.file)
        print(f"took over {done.entries} action results, {size_text(done.bytes)}, every digest verified")
        if done.left_out:
            print(f"left out {done.left_out} members that are damaged, incomplete or none of ours")
        return 1 if done.left_out else 0

    return work


_WORK: dict[str, Callable[[argparse.Namespace], Callable[[Store], int]]] = {
    "info": _info,
    "verify": _verify,
    "gc": _gc,
    "export": _export,
    "import": _import,
}


def _stores_of(run: Path, overrides: Sequence[str]) -> list[str]:
    """The override that chooses the store of a run, unless another one is asked for."""
    if any(word.lstrip("+").startswith("store.path=") for word in overrides):
        return []
    path = files.read_run(run).spec.store_path.replace("\\", "\\\\").replace("'", "\\'")
    return [f"store.path='{path}'"]


def _without_store(word: str, folder: Path) -> int:
    """What a command says of a store that is not there; looking after it makes none."""
    said = f"there is no store at {folder_text(folder)} yet; `store.path=...` names another one"
    if word == "export":
        raise UsageError(f"nothing can be exported: {said}")
    print(f"{said}. Nothing was done")
    return 0


def parse_size(text: str, flag: str = "--max-size") -> int:
    """Bytes in `10G`, `512MiB`, `1.5 TB` or `0`; the letters mean powers of 1024.

    Raises:
        UsageError: it is not a size.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{flag} {text!r} is not a size; write a number with K, M, G or T, such as 10G")
    return int(float(found.group(1)) * _UNITS[found.group(2).upper()])


def parse_age(text: str) -> float:
    """Seconds in `30d`, `12h`, `2w` or `90m`.

    Raises:
        UsageError: it is not an age.
    """
    seconds = span(text)
    if seconds is None:
        raise UsageError(f"--older-than {text!r} is not an age; write a number with m, h, d or w, such as 30d")
    return seconds


def size_text(count: int) -> str:
    """`1.5 GiB`."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        size = 1024 ** ("KMGT".index(unit[0]) + 1)
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
