"""Which folders are those of our own runs: `outputs/2026-11-30/05-17-30-125`, with `latest` and the history beside.

Paths arrive, a yes or no leaves. A model that looks through its project finds more of them each time, and has nothing
to do with them. Hydra's own folders have nearly the same names, without the thousandths of a second; they count.
"""

from __future__ import annotations

import os
import re

_DATE = r"\d{4}-\d{2}-\d{2}"
_TIME = r"\d{2}-\d{2}-\d{2}-\d{3}"
_RUN = re.compile(rf"{re.escape(os.sep)}{_DATE}{re.escape(os.sep)}{_TIME}({re.escape(os.sep)}|$)")
_OF_DATE, _OF_TIME = re.compile(_DATE), re.compile(_TIME)
_LATEST, _HISTORY = "latest", "history.sqlite"


def is_in_run(path: str) -> bool:
    """Returns whether a path is that of a run's folder, or of something in it, or goes through the link to the last."""
    before, link, after = path.partition(f"{os.sep}{_LATEST}")
    is_through = bool(link) and after[:1] in ("", os.sep) and _leads_to_run(before + link)
    return is_through or _RUN.search(path) is not None


def is_of_runs(path: str) -> bool:
    """Returns whether an entry of a folder is there because of our runs alone: one of them, all of a day, or what tells
    of them.

    Args:
        path: of the entry.
    """
    folder, name = os.path.split(path)
    if name == _LATEST or name.startswith(_HISTORY):
        return _leads_to_run(os.path.join(folder, _LATEST))
    if _OF_TIME.fullmatch(name):
        return _RUN.search(path) is not None
    return _OF_DATE.fullmatch(name) is not None and _has_runs_alone(path)


def _leads_to_run(link: str) -> bool:
    try:
        return _RUN.search(os.path.join(os.path.dirname(link), os.readlink(link))) is not None
    except OSError:
        return False


def _has_runs_alone(day: str) -> bool:
    try:
        names = os.listdir(day)
    except OSError:
        return False
    return bool(names) and all(map(_OF_TIME.fullmatch, names))
