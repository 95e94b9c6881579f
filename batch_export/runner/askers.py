"""Whether it is the model that asks for something (a variable, a folder's listing), or the machinery around it.

A Python frame arrives, a yes or no leaves. The asker is the first code outside the standard library on the way up from
the call. It counts when it is the user's, or a package's that is not part of the toolchain: torch and what comes with
it ask for a lot, none of it for the model. What an import statement looks for in a folder does not count either; only
the modules that it looks for in vain do.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Collection
from types import FrameType

from batch_export.runner.system_folders import PLACES_OF_PACKAGES
from batch_export.sources.closure import PACKAGE
from batch_export.sources.places import models_dir

_STANDARD_LIBRARY = (
    os.path.dirname(os.__file__) + os.sep,
    os.path.realpath(sysconfig.get_path("stdlib")) + os.sep,
    "<frozen ",
)
_BACKPORTS = frozenset({"importlib_metadata"})
"""Installed packages that are a later version of a module of the standard library."""
_LOOKING_FOR_MODULES = frozenset({"importlib", "_frozen_importlib", "_frozen_importlib_external", "inspect"})
_IMPORTING = frozenset({"<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>"})
"""The files of the code that executes a module."""
_OF_RESOURCES = ("importlib.resources", "importlib.readers", "importlib.simple")
"""Modules in which a package's data are looked for, and no modules."""
_OWN, _ZOO = str(PACKAGE) + os.sep, str(models_dir()) + os.sep


class Askers:
    """Decides who counts.

    Args:
        toolchain: names of top-level packages that do not.
    """

    def __init__(self, toolchain: Collection[str]) -> None:
        self._toolchain = frozenset(toolchain)

    def is_users_own(self, frame: FrameType | None, *, directly: bool = False) -> bool:
        """Returns whether the call that was made in `frame` is of code that is not installed.

        Args:
            frame: the caller's.
            directly: whether what the standard library calls on that code's behalf does not count.
        """
        while frame is not None and _is_standard(frame):
            if directly:
                return False
            frame = frame.f_back
        if frame is None or _is_installed(frame):
            return False
        file = frame.f_code.co_filename
        return file.startswith(_ZOO) or not file.startswith(_OWN)

    def is_for_user(self, frame: FrameType | None) -> bool:
        """Returns whether the call that was made in `frame` is of such code, or of a library that it called."""
        while frame is not None and (_is_standard(frame) or _is_installed(frame)):
            frame = frame.f_back
        return self.is_users_own(frame)

    def is_called_by_user(self, frame: FrameType | None) -> bool:
        """Returns whether the call that was made in `frame` is of a library's function that such code has called.

        What a library does while it is imported is not.
        """
        if not self.count(frame, importing=True):
            return False
        while frame is not None and (_is_standard(frame) or _is_installed(frame)):
            if frame.f_code.co_filename in _IMPORTING:
                return False
            frame = frame.f_back
        return self.is_users_own(frame)

    def count(self, frame: FrameType | None, *, importing: bool = False) -> bool:
        """Returns whether the call that was made in `frame` counts.

        Args:
            frame: the caller's.
            importing: whether it is the search for a module that was called.
        """
        while frame is not None:
            file, top = frame.f_code.co_filename, _top(frame)
            if not _is_standard(frame):
                return file.startswith(_ZOO) or (not file.startswith(_OWN) and top not in self._toolchain)
            is_of_resources = frame.f_globals.get("__name__", "").startswith(_OF_RESOURCES)
            if top in _LOOKING_FOR_MODULES and not importing and not is_of_resources:
                return False
            frame = frame.f_back
        return False


def _top(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _is_installed(frame: FrameType) -> bool:
    return any(folder in frame.f_code.co_filename for folder in PLACES_OF_PACKAGES)


def _is_standard(frame: FrameType) -> bool:
    if _is_installed(frame):
        return _top(frame) in _BACKPORTS
    return frame.f_code.co_filename.startswith(_STANDARD_LIBRARY)
