"""Installed packages: whose a module is, and what distinguishes one state of a distribution from another.

Names of modules and distributions arrive, short texts leave. Only metadata is read, and listings of folders on
`sys.path`: nothing is imported.
"""

from __future__ import annotations

import csv
import importlib.metadata
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from batch_export.digest import digest_value
from batch_export.sources import editable_maps, start_up
from batch_export.sources.closure import is_installed
from batch_export.sources.file_digests import file_digest, files_digest, folder_digest, record_digest
from batch_export.sources.search_path import search_path

ABSENT = "absent"
WITHOUT_METADATA = "module:"
"""Begins the name of a package that no distribution's metadata lists; its files' content stands for it."""

FORM = "form:"
"""Begins the name of a module of a package of which counts what an import takes: `ext.abi3.so` before `ext.py`."""

CONTENT = "content "
"""Begins the state of such a package."""

_BUILT = "#"
"""Stands between a version and what tells one build of it from another; in no version."""

ALL = "*"
"""The name that stands for every installed distribution, for code that looked them all over."""

_looks: list[None] = []
"""One for each `look_again`."""

_OLDER_LISTS = {"SOURCES.txt": os.pardir, "installed-files.txt": os.curdir}
"""What lists a distribution's files where there is no RECORD, and from which folder, seen from the metadata."""

_ASKED_FOR = ("METADATA", "entry_points.txt")
"""What of a distribution's metadata programs ask for."""

METADATA_SUFFIXES = (".dist-info", ".egg-info")


def state(name: str) -> str:
    """Returns the present state of a distribution: its version, and a digest where that does not say all.

    A version and what the RECORD lists stand for what comes from an index or a folder of wheels, which may be built
    again under one version. What was installed from a path, an archive or a repository may also be edited where it is:
    a digest of its files stands for it, which are looked at once until `look_again`, and of what programs ask of its
    metadata. An editable install's other files are local sources, recorded one by one.

    Args:
        name: as `owners` returns it, or what stands for others.
    """
    if name == ALL:
        return _all()
    if name in start_up.NAMES:
        return start_up.state(name)
    if name.startswith(WITHOUT_METADATA):
        return _content(name.removeprefix(WITHOUT_METADATA))
    if name.startswith(FORM):
        return _form(_found(name.removeprefix(FORM)))
    for entry in search_path():
        found = _listed(entry or os.getcwd(), _changed(entry or os.getcwd())).get(name)
        if found is not None:
            version, files, is_direct = _state(found, _changed(found))
            if files:
                return f"{version} {_files_now(found, files)}"
            return version if is_direct else version + _built(os.path.join(found, "RECORD"))
    return ABSENT


def told(before: str, now: str) -> str:
    """Returns the change from one state to another as it is said: versions, where they say it."""
    if before.partition(_BUILT)[0] != now.partition(_BUILT)[0]:
        before, now = before.partition(_BUILT)[0], now.partition(_BUILT)[0]
    elif _BUILT in before and _BUILT in now:
        return f"{now.partition(_BUILT)[0]} is installed with other files"
    return f"{before} -> {now}"


def look_again() -> None:
    """Says that packages' files may have changed since they were looked at; called by who opens a store."""
    _looks.append(None)
    _files_now.cache_clear()
    start_up.state.cache_clear()


def outside(states: Iterable[tuple[str, str]], folder: str) -> tuple[tuple[str, str], ...]:
    """Returns names and states without the packages that lie below a folder, as if that were not on the path."""
    kept = []
    for name, found in states:
        if name == ALL:
            kept.append((name, _all(folder)))
        elif name in start_up.NAMES:
            kept.append((name, start_up.state(name, folder)))
        elif not _place(name).startswith(folder + os.sep):
            kept.append((name, found))
    return tuple(kept)


def _place(name: str) -> str:
    """Where a package's metadata lies, or the package itself where it has none; empty where nothing is."""
    if name.startswith((WITHOUT_METADATA, FORM)):
        spec = PathFinder.find_spec(name.partition(":")[2].partition(".")[0], search_path())
        return next(iter((spec.submodule_search_locations if spec else None) or ()), (spec and spec.origin) or "")
    listed = (_listed(entry or os.getcwd(), _changed(entry or os.getcwd())) for entry in search_path())
    return next((found[name] for found in listed if name in found), "")


def _all(aside: str = "") -> str:
    """Names and versions of what is installed; folders on the path that are no place for packages are left out."""
    entries = [entry for entry in search_path() if os.path.basename(entry) in ("site-packages", "dist-packages")]
    entries = [entry for entry in entries if not aside or not entry.startswith(aside + os.sep)]
    found = [os.path.basename(path) for entry in entries for path in _listed(entry, _changed(entry)).values()]
    return digest_value(sorted(found))[:16]


def path_stamp() -> tuple[tuple[str, int], ...]:
    """Returns what changes whenever a package is installed into a folder on `sys.path`, or removed from it, and with
    each `look_again`.
    """
    return (("", len(_looks)), *((entry, _changed(entry or os.getcwd())) for entry in search_path()))


def owners(modules: Iterable[tuple[str, str]]) -> set[str]:
    """Returns the names of the distributions that modules belong to.

    Args:
        modules: each one's dotted name and file, all of installed packages.
    """
    entries = _entries()
    tops: dict[tuple[str, str], None] = {}
    for _, file in modules:
        entry = _entry_of(file, entries)
        if entry is not None:
            tops[entry, _unit(entry, file)] = None
    return {_owner(entry, unit, _changed(entry)) for entry, unit in tops}


def _entries() -> tuple[str, ...]:
    """The folders on the path, the innermost first."""
    path = search_path()
    return _innermost_first(path, "" if all(map(os.path.isabs, path)) else os.getcwd())


@lru_cache(maxsize=16)
def _innermost_first(path: tuple[str, ...], current: str) -> tuple[str, ...]:
    return tuple(sorted({os.path.normpath(os.path.join(current, entry)) for entry in path}, key=len, reverse=True))


def _entry_of(file: str, entries: Iterable[str]) -> str | None:
    return next((one for one in entries if file.startswith(one + os.sep)), None)


def owners_of_files(files: Iterable[str]) -> set[str]:
    """Returns the names of the distributions that files in folders of installed packages belong to.

    Args:
        files: of modules, as bytecode too, or others; what lies in no folder on `sys.path` has no owner.
    """
    return owners(("", source_of(file)) for file in files)


def lists(file: str) -> bool:
    """Returns whether a file of a package is one of those that its owner's metadata lists, with a hash where it is a
    RECORD: the owner's state then says what it holds.

    Args:
        file: in a folder on `sys.path`.
    """
    file = source_of(file)
    entry = _entry_of(file, _entries())
    metadata = entry and _listed(entry, _changed(entry)).get(_owner(entry, _unit(entry, file), _changed(entry)))
    if not entry or not metadata:
        return False
    return file[len(entry) + 1 :] in _lists(metadata, _changed(metadata))


@cache
def _lists(metadata: str, changed: int) -> frozenset[str]:
    """The files that a distribution's metadata lists, as paths from the folder that it lies in; not those of which its
    RECORD says no hash.
    """
    own = os.path.basename(metadata)
    texts = {name: _text(os.path.join(metadata, name), changed) for name in ("RECORD", *_OLDER_LISTS)}
    found = {line[0] for line in csv.reader(texts["RECORD"].splitlines()) if len(line) > 1 and line[1]}
    for name, folder in _OLDER_LISTS.items():
        found.update(os.path.normpath(os.path.join(own, folder, line)) for line in texts[name].splitlines())
    return frozenset(found)


def source_of(file: str) -> str:
    """Returns the file whose bytecode it is; others as they are."""
    folder, name = os.path.split(file)
    parent, last = os.path.split(folder)
    return os.path.join(parent, f"{name.partition('.')[0]}.py") if last == "__pycache__" else file


@cache
def requirements(name: str) -> set[str]:
    """Returns the names of the distributions that one asks for."""
    try:
        asked = importlib.metadata.requires(name) or []
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return set()
    return {normal(re.split(r"[^A-Za-z0-9._-]", text, maxsplit=1)[0]) for text in asked}


def normal(name: str) -> str:
    """Returns a distribution's name as comparisons use it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _unit(entry: str, file: str) -> str:
    """The part of a module's path that tells whose it is: `numpy`, `google/protobuf` (of many owners), `six`."""
    first, *rest = file[len(entry) + 1 :].split(os.sep)
    if not rest:
        return first.partition(".")[0]
    if _is_regular(entry, first):
        return first
    return f"{first}/{rest[0].partition('.')[0]}"


@cache
def _is_regular(entry: str, folder: str) -> bool:
    return os.path.exists(os.path.join(entry, folder, "__init__.py"))


@cache
def _owner(entry: str, unit: str, changed: int) -> str:
    listed = _listed(entry, changed)
    guess = normal(unit.replace("/", "-"))
    first = normal(unit.partition("/")[0])
    likely = [name for name in dict.fromkeys((guess, first)) if name in listed]
    others = (name for name in listed if name not in likely)
    for name in (*likely, *others):
        if _holds(listed[name], unit, by_name=name == guess):
            return name
    return WITHOUT_METADATA + unit.replace("/", ".")


def _holds(metadata: str, unit: str, *, by_name: bool) -> bool:
    changed = _changed(metadata)
    record = _text(os.path.join(metadata, "RECORD"), changed) or _text(os.path.join(metadata, "SOURCES.txt"), changed)
    if record:
        lines = f"\n{record}"
        return any(f"\n{unit}{end}" in lines for end in ("/", ".", ","))
    tops = _text(os.path.join(metadata, "top_level.txt"), changed).split()
    return unit.partition("/")[0] in tops if tops else by_name


@cache
def _text(path: str, changed: int) -> str:
    del changed  # it is there for the cache
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _changed(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


@cache
def _listed(entry: str, changed: int) -> dict[str, str]:
    """The metadata folders in a folder: normal name -> path."""
    del changed  # it is there for the cache
    try:
        names = os.listdir(entry)
    except OSError:
        return {}
    return {
        normal(name.partition("-")[0].removesuffix(".egg-info")): os.path.join(entry, name)
        for name in sorted(names)
        if name.endswith(METADATA_SUFFIXES)
    }


def _built(record: str) -> str:
    """Returns what tells a distribution from another one of its version: nothing where no RECORD lists its files."""
    try:
        return _BUILT + record_digest(Path(record))[:16]
    except OSError:
        return ""


@cache
def _state(metadata: str, changed: int) -> tuple[str, tuple[str, ...], bool]:
    """Returns a distribution's version, its files where that does not say all, and whether it came from a path."""
    del changed  # it is there for the cache
    version = os.path.basename(metadata).rpartition(".")[0].partition("-")[2]
    if not version or metadata.endswith(".egg-info"):
        version = _version(metadata)
    try:
        direct = json.loads(Path(metadata, "direct_url.json").read_text(encoding="utf-8"))
        editable = bool(direct.get("dir_info", {}).get("editable"))
    except (OSError, ValueError, AttributeError):
        return version, (), False
    own = os.path.basename(metadata)
    asked = tuple(f"{own}/{name}" for name in _ASKED_FOR)
    return version, asked if editable else (*asked, *_installed_files(metadata)), True


def _version(metadata: str) -> str:
    try:
        return importlib.metadata.PathDistribution(Path(metadata)).version or "unknown"
    except (OSError, KeyError, ValueError):
        return "unknown"


def _installed_files(metadata: str) -> tuple[str, ...]:
    """Names of the package's own files: scripts and bytecode differ from one environment to the next."""
    own = os.path.basename(metadata) + "/"
    lines = csv.reader(_text(os.path.join(metadata, "RECORD"), _changed(metadata)).splitlines())
    names = (line[0] for line in lines if line)
    return tuple(sorted(name for name in names if not name.startswith(("..", "/", own)) and not name.endswith(".pyc")))


@cache
def _files_now(metadata: str, names: tuple[str, ...]) -> str:
    return files_digest(Path(os.path.dirname(metadata)), names)[:16]


def _content(module: str) -> str:
    """The state of a package without metadata, found on the path but not imported."""
    spec = _found(module)
    if spec is None:
        return ABSENT
    try:
        folders = [Path(place) for place in spec.submodule_search_locations or ()]
        if folders:
            return CONTENT + digest_value([folder_digest(folder) for folder in folders])[:16]
        return CONTENT + file_digest(Path(spec.origin or ""))[:16]
    except OSError as error:
        return f"unreadable: {error.strerror}"


def _form(spec: ModuleSpec | None) -> str:
    """What an import takes: a file, or the folders of a package without one (a namespace), to which others may add.

    Of local folders it counts how many there are, not where they lie.
    """
    if spec is None:
        return ABSENT
    if spec.origin is not None:
        return os.path.basename(spec.origin)
    places = {os.path.realpath(one) for one in spec.submodule_search_locations or ()}
    return digest_value(sorted(one if is_installed(one) else "" for one in places))[:16]


def is_there(module: str) -> bool:
    """Whether an import would find a module in an installed package, or a folder in whose place one may come.

    One of the standard library is in no package.
    """
    spec = None if module.partition(".")[0] in sys.stdlib_module_names else _found(module)
    return spec is not None and (spec.origin is None or is_installed(spec.origin))


def origin_of(module: str) -> str | None:
    """Returns where an import would find a module that is none of the standard library's: a file, or in an archive."""
    spec = None if module.partition(".")[0] in sys.stdlib_module_names else _found(module)
    return spec.origin if spec is not None else None


def file_of(module: str) -> str | None:
    """Returns the file of a module that an import would find in no installed package; None where there is none."""
    origin = origin_of(module)
    return origin if origin and os.path.isfile(origin) and not is_installed(origin) else None


def _found(module: str) -> ModuleSpec | None:
    """Where an import would find a module, of which nothing is imported."""
    places: Sequence[str] = search_path()
    spec = None
    for name in module.split("."):
        spec = PathFinder.find_spec(name, places)
        if spec is None and name == module.partition(".")[0]:
            spec = _editable(name)
        if spec is None:
            return None
        places = list(spec.submodule_search_locations or ())
    return spec


def _editable(top: str) -> ModuleSpec | None:
    """Where the finder of an editable install has a module or package."""
    place = editable_maps.place_of(top)
    if place is None:
        return None
    is_package = os.path.isdir(place)
    return PathFinder.find_spec(
        os.path.basename(place if is_package else os.path.splitext(place)[0]), [os.path.dirname(place)]
    )
