"""Which files the modules of this process came from."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

from batch_export.sources.closure import is_installed


def file_of(module: str) -> str | None:
    """Returns the absolute path of a loaded module's file; None when it has none."""
    try:
        name = sys.modules[module].__file__
    except Exception:  # modules may be lazy objects whose attributes raise
        return None
    if not isinstance(name, str):
        return None
    return name if os.path.isabs(name) else os.path.abspath(name)


def module_files() -> set[str]:
    """Returns the files of all modules loaded so far, as absolute paths."""
    return {name for name in map(file_of, list(sys.modules)) if name}


def installed_modules() -> frozenset[str]:
    """Returns the files of the modules loaded so far that came with installed packages, not through links."""
    folders = cache(real_folder)
    names = module_files()
    return frozenset(name for name in names if folders(os.path.dirname(name))[1] and not os.path.islink(name))


def real_folder(name: str) -> tuple[str, bool]:
    """Returns a folder without symlinks, and whether it is one of installed packages."""
    real = os.path.realpath(name)
    return real, is_installed(Path(real))
