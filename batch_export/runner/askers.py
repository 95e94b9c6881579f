"""Whether it is the model that asks for something (a variable, a folder's listing), or the machinery around it.

A Python frame arrives, a yes or no leaves. The asker is the first code outside the standard library on the way up from
the call; in a thread in which there is none, whoever started that thread. It counts when it is the user's, or a
package's that is not part of the toolchain: torch and what comes with it ask for a lot, none of it for the model. What
an import statement looks for in a folder does not count either; only the modules that it looks for in vain do.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Collection
from types import FrameType

from batch_export.runner.started_threads import StartedThreads
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
_LOOKING_FOR_MODULES = frozenset(
    {"importlib", "_frozen_importlib", "_frozen_importlib_external", "inspect", *_BACKPORTS}
)
_IMPORTING = frozenset({"<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>"})
"""The files of the code that executes a module."""
_READING = "get_data"
"""A method there that reads what lies beside a module, too."""
_OF_RESOURCES = ("importlib.resources", "importlib.readers", "importlib.simple")
"""Modules in which a package's data are looked for, and no modules."""
_OWN, _ZOO = str(PACKAGE) + os.sep, str(models_dir()) + os.sep
_FOR_CONFIGS = str(PACKAGE / "stages" / "for_config.py")
"""Where our own code calls what a config names."""
_OWN_CODE, _FOR_USER, _COUNTING = "own code", "for the user", "counting"


class Askers:
    """Decides who counts.

    Args:
        toolchain: names of top-level packages that do not.
    """

    def __init__(self, toolchain: Collection[str]) -> None:
        self._toolchain = frozenset(toolchain)
        self._threads = StartedThreads(self._all_of)

    def watch(self) -> None:
        """Starts to remember who starts threads; there is no way to stop."""
        self._threads.watch()

    def is_users_own(self, frame: FrameType | None, *, directly: bool = False) -> bool:
        """Returns whether the call that was made in `frame` is of code that is not installed, or of a config.

        Args:
            frame: the caller's.
            directly: whether what the standard library calls on that code's behalf does not count.
        """
        last = frame
        while frame is not None and _is_standard(frame):
            if directly:
                return False
            last, frame = frame, frame.f_back
        if frame is None:
            return _OWN_CODE in self._threads.of(last)
        if _is_installed(frame):
            return False
        file = frame.f_code.co_filename
        return file.startswith(_ZOO) or file == _FOR_CONFIGS or not file.startswith(_OWN)

    def is_for_user(self, frame: FrameType | None) -> bool:
        """Returns whether the call that was made in `frame` is of such code, or of a library that it called."""
        last = frame
        while frame is not None and (_is_standard(frame) or _is_installed(frame)):
            last, frame = frame, frame.f_back
        return self.is_users_own(frame) if frame is not None else _FOR_USER in self._threads.of(last)

    def is_called_by_user(self, frame: FrameType | None, *, by_toolchain: bool = False) -> bool:
        """Returns whether the call that was made in `frame` is of a library's function that such code has called.

        What a library does while it is imported is not.

        Args:
            frame: the caller's.
            by_toolchain: whether the toolchain's functions are some as well.
        """
        if not by_toolchain and not self.count(frame, importing=True):
            return False
        last = frame
        while frame is not None and (_is_standard(frame) or _is_installed(frame)):
            if frame.f_code.co_filename in _IMPORTING and frame.f_code.co_name != _READING:
                return False
            last, frame = frame, frame.f_back
        return self.is_users_own(frame) if frame is not None else _FOR_USER in self._threads.of(last)

    def is_of_toolchain(self, module: str) -> bool:
        """Returns whether a module is of a package that does not count."""
        return module.partition(".")[0] in self._toolchain

    def count(self, frame: FrameType | None, *, importing: bool = False) -> bool:
        """Returns whether the call that was made in `frame` counts.

        Args:
            frame: the caller's.
            importing: whether it is the search for a module that was called.
        """
        last = frame
        while frame is not None:
            file, top = frame.f_code.co_filename, top_of(frame)
            if not _is_standard(frame):
                if file.startswith(_ZOO) or file == _FOR_CONFIGS:
                    return True
                is_library = file.startswith(_OWN) or top in self._toolchain
                return not is_library and not (_is_installed(frame) and self._is_imported_by_toolchain(frame))
            is_of_resources = frame.f_globals.get("__name__", "").startswith(_OF_RESOURCES)
            if top in _LOOKING_FOR_MODULES and not importing and not is_of_resources:
                return False
            last, frame = frame, frame.f_back
        return _COUNTING in self._threads.of(last)

    def _is_imported_by_toolchain(self, frame: FrameType | None) -> bool:
        """Whether a library's code runs since the toolchain imports it, perhaps by way of further libraries."""
        is_imported = False
        while frame is not None:
            if frame.f_code.co_filename in _IMPORTING:
                is_imported = True
            elif not _is_standard(frame):
                if not _is_installed(frame) or frame.f_code.co_filename.startswith(_OWN):
                    return False
                if is_imported and top_of(frame) in self._toolchain:
                    return True
                is_imported = False
            frame = frame.f_back
        return False

    def _all_of(self, frame: FrameType | None) -> frozenset[str]:
        """What is true of the code that runs in a frame, for a thread that it starts."""
        answers = {
            _OWN_CODE: self.is_users_own(frame),
            _FOR_USER: self.is_for_user(frame),
            _COUNTING: self.count(frame, importing=True),
        }
        return frozenset(name for name, holds in answers.items() if holds)


def is_of_library(file: str) -> bool:
    """Whether code of a file is installed, Python's own, or ours."""
    is_own = file.startswith(_OWN) and not file.startswith(_ZOO) and file != _FOR_CONFIGS
    return is_own or file.startswith(_STANDARD_LIBRARY) or any(folder in file for folder in PLACES_OF_PACKAGES)


def top_of(frame: FrameType) -> str:
    """The top-level name of the module whose code runs in a frame."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _is_installed(frame: FrameType) -> bool:
    return any(folder in frame.f_code.co_filename for folder in PLACES_OF_PACKAGES)


def _is_standard(frame: FrameType) -> bool:
    if _is_installed(frame):
        return top_of(frame) in _BACKPORTS
    return frame.f_code.co_filename.startswith(_STANDARD_LIBRARY)
