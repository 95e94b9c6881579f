"""Torch reports on a capture on the console by itself: graphs, banners, warnings. An export prints nothing.

Arrives: nothing; a context is opened round what calls torch. What torch raises is told in our errors. Whoever asks
torch for its logs (`TORCH_LOGS`) gets them.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import logging
import os
import warnings
from collections.abc import Iterator

import torch

_PRINTING = ("torch.export._trace", "torch.export._draft_export")
"""Modules of torch that call `print`."""


def _nothing(*_: object, **__: object) -> None:
    """In place of `print`."""


def _handlers() -> list[logging.Handler]:
    """Of all loggers of torch; a logger that others propagate to is not asked for its level."""
    loggers = [one for name, one in logging.root.manager.loggerDict.items() if name.split(".")[0] == "torch"]
    found = [handler for one in loggers if isinstance(one, logging.Logger) for handler in one.handlers]
    return list(dict.fromkeys(found))


_ERRORS = 2
"""The level at which torch's C++ says errors alone."""


@functools.cache
def _level_of_cpp() -> ctypes.c_int | None:
    """From which level on torch's C++ writes to stderr what it warns of in operators that no Python function called.

    NOTE: it is what `TORCH_CPP_LOG_LEVEL` sets as torch is loaded, and has no name in Python.
    """
    try:
        library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so"))
        return ctypes.c_int.in_dll(library, "FLAGS_caffe2_log_level")
    except (OSError, ValueError):  # of another system, or another torch
        return None


@contextlib.contextmanager
def _cpp_quiet() -> Iterator[None]:
    level = None if os.environ.get("TORCH_CPP_LOG_LEVEL") else _level_of_cpp()
    if level is None:
        yield
        return
    before = level.value
    level.value = max(before, _ERRORS)
    try:
        yield
    finally:
        level.value = before


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """While open, torch writes no logs, prints no graphs and gives no warnings."""
    asked = bool(os.environ.get("TORCH_LOGS"))
    modules = [] if asked else [importlib.import_module(name) for name in _PRINTING]
    handlers = [] if asked else _handlers()
    levels = [handler.level for handler in handlers]
    for handler in handlers:
        handler.setLevel(logging.CRITICAL + 1)
    for module in modules:
        vars(module)["print"] = _nothing
    try:
        with warnings.catch_warnings(), contextlib.nullcontext() if asked else _cpp_quiet():
            warnings.simplefilter("ignore")
            yield
    finally:
        for module in modules:
            vars(module).pop("print", None)
        for handler, level in zip(handlers, levels, strict=True):
            handler.setLevel(level)
