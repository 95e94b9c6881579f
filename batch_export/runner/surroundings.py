"""`environment.json` of a run: when and with what it was made, and the token that its results carry.

A toolchain arrives and is written down before the first cell; a resumed run reads it back and learns what has changed,
reports and the history read start, versions, host and commit. Plain data; nothing of the process's environment
variables is in it.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from batch_export.errors import RunError
from batch_export.files import whole_file
from batch_export.sources.closure import find_module
from batch_export.sources.places import models_dir, resolve_target
from batch_export.sources.toolchain import Toolchain

ENVIRONMENT_NAME = "environment.json"
SCHEMA_VERSION = 1
"""Raised when the file changes incompatibly. 1 (2026-11): first."""
_GIT_LIMIT_S = 5.0
DIRTY = "-dirty"
"""Ends the name of a commit that the files differ from."""
_OWN_COMMIT = "batch_export's commit"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a run's results depend on besides its cells.

    Attributes:
        run: the run's token; results that it executed count as executed by it when it is resumed.
        folder: the current folder when it was started.
        split: names of the capture groups whose cells are split by opset; None until that is decided.
        started: when the run began, UTC, ISO 8601; a resumed run keeps it.
        commit: of the repository that holds the models or their configs, `-dirty` when it has changes; empty where
            they are in none.
        own_commit: of the repository that holds batch_export itself, where that is another one.
    """

    run: str
    toolchain: Toolchain
    folder: str = ""
    split: tuple[str, ...] | None = None
    started: str = ""
    commit: str = ""
    own_commit: str = ""
    schema_version: int = SCHEMA_VERSION


def surroundings_of(folder: Path, toolchain: Toolchain, configs: Sequence[Path] = ()) -> tuple[Surroundings, list[str]]:
    """Returns the run's surroundings, written down when they are not yet, and what has changed since they were.

    Args:
        folder: of the run.
        toolchain: of the run.
        configs: the user's folders with configs.

    Raises:
        RunError: the file cannot be written.
    """
    before = read_surroundings(folder)
    if before is not None:
        return replace(before, toolchain=toolchain), changes(before.toolchain, toolchain)
    began = datetime.now(UTC).isoformat(timespec="milliseconds")
    ours, theirs = _top(models_dir()), _project(toolchain, configs)
    own = _commit(models_dir())
    made = Surroundings(
        uuid.uuid4().hex,
        toolchain,
        os.getcwd(),
        started=began,
        commit=_commit(theirs) if theirs is not None else "",
        own_commit=own if theirs is None or _top(theirs) != ours else "",
    )
    write_surroundings(folder, made)
    return made, []


def write_surroundings(folder: Path, surroundings: Surroundings) -> None:
    """Writes `environment.json`.

    Raises:
        RunError: it cannot be written.
    """
    path = folder / ENVIRONMENT_NAME
    try:
        with whole_file(path, durable=True) as stream:
            stream.write(msgspec.json.format(msgspec.json.encode(surroundings)) + b"\n")
    except OSError as error:
        raise RunError(f"{path} could not be written ({error.strerror or error})") from error


def read_surroundings(folder: Path) -> Surroundings | None:
    """Reads `environment.json`; None when there is none, or none that this version reads."""
    try:
        return msgspec.json.decode((folder / ENVIRONMENT_NAME).read_bytes(), type=Surroundings)
    except (OSError, msgspec.MsgspecError, RecursionError):
        return None


def circumstances(folder: Path) -> Surroundings:
    """Reads `environment.json`; empty circumstances when there is none that this version reads."""
    return read_surroundings(folder) or Surroundings("", Toolchain({}, {}, {}, {}))


def changes(before: Toolchain, now: Toolchain) -> list[str]:
    """Returns one short text for everything in which two toolchains differ."""
    found: list[str] = []
    for kind, old, new in (
        ("version of", before.versions, now.versions),
        ("our own sources of", before.own, now.own),
        ("sources of", before.targets, now.targets),
        ("file or sources named", before.named, now.named),
        ("environment of", before.environments, now.environments),
        ("environment of", _contents(before), _contents(now)),
        ("sources served for", before.served, now.served),
        ("host:", before.host, now.host),
    ):
        for name in sorted({*old, *new}):
            was, is_now = old.get(name, "absent"), new.get(name, "absent")
            if was != is_now:
                found.append(f"{kind} {name}" if "sources" in kind else f"{kind} {name} {was} -> {is_now}")
    return found


def _contents(toolchain: Toolchain) -> dict[str, str]:
    return {name: layer.content for name, layer in toolchain.layers.items()}


def versions_of(made: Surroundings) -> dict[str, str]:
    """Versions by name, with batch_export's own commit where it is known and not the models' as well."""
    return {**made.toolchain.versions, **({_OWN_COMMIT: made.own_commit} if made.own_commit else {})}


def _project(toolchain: Toolchain, configs: Sequence[Path]) -> Path | None:
    """A folder in the repository that the models are of; None where none of them is in any.

    The sources of models and exporters come before the files that they name, and these before configs; a repository
    that is not batch_export's own comes before that one. Where a run started counts only where nothing is known.
    """
    roots = tuple(map(Path, toolchain.roots))
    theirs = (target for target in toolchain.targets if not target.startswith("batch_export."))
    modules = (find_module(resolve_target(target)[0], roots) for target in theirs)
    files = [*filter(None, modules), *(Path(text) for text in toolchain.named)]
    folders = [path if path.is_dir() else path.parent for path in (*files, *configs) if path.exists()]
    tops = {folder: top for folder in dict.fromkeys(folders or [Path.cwd()]) if (top := _top(folder))}
    others = [folder for folder, top in tops.items() if top != _top(models_dir())]
    return next(iter([*others, *tops]), None)


def _commit(folder: Path) -> str:
    try:
        commit = _git(folder, "rev-parse", "--short=12", "HEAD")
        return f"{commit}{DIRTY}" if _git(folder, "status", "--porcelain", "--untracked-files=no") else commit
    except (OSError, subprocess.SubprocessError):
        return ""


def _top(folder: Path) -> str:
    """The repository's folder; empty outside git."""
    try:
        return _git(folder, "rev-parse", "--show-toplevel")
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=_GIT_LIMIT_S, check=True
    )
    return done.stdout.strip()
