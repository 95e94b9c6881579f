"""Configurations of a collection's models: from the cache, or from a child that builds each model once.

A collection and names arrive; a configuration for each, or the reason why there is none, leaves. A description is kept
by what it depends on: the versions of the packages, and the sources of the function that describes; a crash
and a timeout are not kept. This process imports neither torch nor a library of models.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from batch_export.collections.kinds import Collection
from batch_export.digest import digest_value
from batch_export.errors import RunError
from batch_export.files import cache_folder, whole_file
from batch_export.sources.closure import LocalSources, local_roots
from batch_export.sources.toolchain import distribution_version

ROOT_VARIABLE = "BATCH_EXPORT_COLLECTIONS"
_CHILD = "batch_export.collections.describe_child"
_FORMAT = 2
"""Of the files that keep descriptions. 2 (2026-11-22): inputs are in forward's order."""
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}

Described = Mapping[str, Any] | str
"""A configuration as `conf/model/*.yaml` has it, or why there is none."""


def described(
    collection: Collection, names: Sequence[str], *, tell: Callable[[str], None] = lambda sentence: None
) -> dict[str, Described]:
    """Returns the configuration of each name, or the reason why it has none.

    Args:
        collection: whose names they are.
        names: without what stands before the colon.
        tell: is given a sentence before models are built, and one now and then.

    Raises:
        RunError: the child that describes cannot be started, or its package cannot be imported.
    """
    folder = root() / collection.name / _state(collection)
    found = {name: kept for name in names if (kept := _read(_file(folder, name))) is not None}
    missing = [name for name in names if name not in found]
    if missing:
        tell(f"{collection.name}: {len(missing)} of {len(names)} models are built once to learn their inputs")
        folder.mkdir(parents=True, exist_ok=True)
        for index, (name, answer) in enumerate(zip(missing, _asked(collection, missing), strict=True)):
            if not answer.get("passing"):
                with whole_file(_file(folder, name)) as stream:
                    stream.write(json.dumps({"name": name, **answer}).encode())  # inputs keep forward's order
            found[name] = _meant(answer)
            if index % 50 == 49:
                tell(f"{collection.name}: {index + 1} of {len(missing)} built")
    return {name: found[name] for name in names}


def root() -> Path:
    """Returns the folder of all descriptions: that of BATCH_EXPORT_COLLECTIONS, or `batch_export/collections` in the
    user's cache folder. It may not exist.
    """
    return cache_folder(ROOT_VARIABLE, "collections")


def _state(collection: Collection) -> str:
    """What descriptions depend on, as the name of a folder."""
    sources = LocalSources(local_roots())
    versions = {name: distribution_version(name) for name in collection.packages}
    own = [sources.digest(dotted.partition(":")[0]) for dotted in (collection.describe, _CHILD)]
    return digest_value([_FORMAT, versions, own])[:24]


def _file(folder: Path, name: str) -> Path:
    return folder / f"{digest_value(name)[:24]}.json"


def _read(path: Path) -> Described | None:
    try:
        return _meant(json.loads(path.read_bytes()))
    except (OSError, ValueError, KeyError):
        return None


def _meant(answer: Mapping[str, Any]) -> Described:
    config = answer.get("config")
    return config if isinstance(config, dict) else str(answer["reason"])


def _asked(collection: Collection, names: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """Yields what the child answers, in order."""
    command = [sys.executable, "-W", "ignore", "-m", _CHILD]
    command += [collection.describe, collection.prepare, str(collection.limit_s)]
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    environment = {**os.environ, **_OFFLINE, **threads}
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        text=True,
        encoding="utf-8",
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        for name in names:
            with contextlib.suppress(BrokenPipeError):  # it ended; its answer is missing then
                child.stdin.write(name + "\n")
                child.stdin.flush()
            line = child.stdout.readline()
            if not line:
                raise RunError(
                    f"The child that describes models of {collection.name} ended at {name!r}. "
                    f"Next step: import {collection.library} by hand and see what it says"
                )
            yield json.loads(line)
    finally:
        with contextlib.suppress(OSError):
            child.stdin.close()
        child.kill()
        child.wait()
        child.stdout.close()
