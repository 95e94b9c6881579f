"""Which packages editable installs have found by a finder of setuptools, and where they lie.

Nothing arrives; names and folders leave, as files in the folders of installed packages say them. Nothing is imported:
who checks a stored result may have started before the package was installed.
"""

from __future__ import annotations

import ast
import os
from functools import lru_cache

from batch_export.sources.search_path import search_path

_BEGIN, _END = "__editable__", "_finder.py"
_MAPS = ("MAPPING", "NAMESPACES")


def place_of(top: str) -> str | None:
    """Returns the file or folder of a top-level module or package; None where no such finder has it."""
    for folder in dict.fromkeys(search_path()):
        found = _maps(folder or os.curdir, _changed(folder or os.curdir)).get(top)
        if found is not None and (os.path.isdir(found) or os.path.isfile(f"{os.path.splitext(found)[0]}.py")):
            return found
    return None


def all_places() -> dict[str, str]:
    """Returns what all of them know: names of the top level -> where these lie."""
    found: dict[str, str] = {}
    for folder in reversed(dict.fromkeys(search_path())):
        found |= _maps(folder or os.curdir, _changed(folder or os.curdir))
    return found


def _changed(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=64)
def _maps(folder: str, changed: int) -> dict[str, str]:
    del changed  # it is there for the cache
    try:
        files = sorted(name for name in os.listdir(folder) if name.startswith(_BEGIN) and name.endswith(_END))
    except OSError:
        return {}
    return {top: place for name in files for top, place in _written(os.path.join(folder, name)).items()}


def _written(file: str) -> dict[str, str]:
    """The names of the top level that one finder knows, with the first place of each."""
    found: dict[str, str] = {}
    try:
        with open(file, encoding="utf-8") as text:
            tree = ast.parse(text.read())
    except (OSError, SyntaxError, ValueError):
        return found
    for one in tree.body:
        match one:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
            ):
                if name in _MAPS and value is not None:
                    found = {**_tops(value), **found}
    return found


def _tops(written: ast.expr) -> dict[str, str]:
    """The names of the top level in a map, with their places; of a package in a namespace the namespace's name."""
    try:
        known = ast.literal_eval(written)
    except ValueError:
        return {}
    several = known.items() if isinstance(known, dict) else ()
    places = ((name, place[0] if isinstance(place, list) and place else place) for name, place in several)
    found = {name: place for name, place in places if isinstance(place, str) and place}
    return {**{name.partition(".")[0]: place for name, place in found.items()}, **found}
