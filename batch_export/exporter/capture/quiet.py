"""Torch reports on a capture on the console by itself: graphs, banners, warnings. An export prints nothing.

Arrives: nothing; a context is opened round what calls torch. What torch raises is told in our errors. Whoever asks
torch for its logs (`TORCH_LOGS`) gets them.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import warnings
from collections.abc import Iterator

_PRINTING = ("torch.export._trace", "torch.export._draft_export")
"""Modules of torch that call `print`."""


def _nothing(*_: object, **__: object) -> None:
    """In place of `print`."""


def _handlers() -> list[logging.Handler]:
    """Of all loggers of torch; a logger that others propagate to is not asked for its level."""
    loggers = [one for name, one in logging.root.manager.loggerDict.items() if name.split(".")[0] == "torch"]
    found = [handler for one in loggers if isinstance(one, logging.Logger) for handler in one.handlers]
    return list(dict.fromkeys(found))


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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for module in modules:
            vars(module).pop("print", None)
        for handler, level in zip(handlers, levels, strict=True):
            handler.setLevel(level)
