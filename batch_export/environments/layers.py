"""The environment that this process runs in, as the ground that others are layered over.

A layered environment holds the packages that it was asked for, and what they need that is not here in a fitting
version; all else, torch above all, is found here. Folders and a digest leave; nothing is installed.
"""

from __future__ import annotations

import site
import sys
from functools import cache
from importlib import metadata
from pathlib import Path

from batch_export.digest import digest_value
from batch_export.environments.request import Request, normal_name, requirement_name

PATH_FILE = "batch_export_below.pth"
"""In a layered environment: leads to the packages of the one below."""

_KEPT = "torch"
"""Is not installed a second time because another package would like another release of it."""


def folders() -> tuple[str, ...]:
    """Returns the folders in which this environment keeps its packages, as its interpreter takes them up."""
    own = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    return tuple(folder for folder in dict.fromkeys(own) if Path(folder).is_dir())


@cache
def ground() -> str:
    """Returns a digest of this environment: where it is, and the packages that are installed in it."""
    below = [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    holds = sorted(path.name for entry in below for path in Path(entry).glob("*.dist-info"))
    return digest_value([folders(), below, holds])


def path_file() -> str:
    """Returns the text of `PATH_FILE`; the path files of the folders below count as well, editable installs too."""
    return "".join(f"import site; site.addsitedir({folder!r})\n" for folder in folders())


def constraints(wanted: Request) -> str:
    """Returns what the packages of a layered environment may not ask for in another release."""
    if _KEPT in {normal_name(requirement_name(text)) for text in wanted.requirements}:
        return ""
    try:
        version = metadata.version(_KEPT)
    except metadata.PackageNotFoundError:
        return ""
    return f"{_KEPT}=={version.partition('+')[0]}\n"
