"""Decisions by data whose failure a forward catches, so that the capture goes on as if nothing had been asked.

Nothing arrives. Leaves: the errors that torch raised for such a decision and that were caught outside of torch. What a
file would do is what the model does where it cannot decide, which eager always can.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

_TORCHS = str(Path(torch.__file__).parent)
_OURS = str(Path(__file__).parents[2])


@contextlib.contextmanager
def swallowed() -> Iterator[list[Exception]]:
    """Gives a list that has, when it ends, the errors that code other than torch's and ours caught."""
    raised: list[Exception] = []
    found: list[Exception] = []
    with contextlib.ExitStack() as stack:
        for kind in (GuardOnDataDependentSymNode, DataDependentOutputException):
            stack.enter_context(patch.object(kind, "__init__", _noted(kind.__init__, raised)))
        yield found
    found += [error for error in raised if not (_catcher(error) or _TORCHS).startswith((_TORCHS, _OURS))]


def _noted(original: Any, raised: list[Exception]) -> Any:
    def init(self: Exception, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        raised.append(self)

    return init


def _catcher(error: Exception) -> str:
    """The file of the frame that an error came to, from where it was raised; empty where it was never raised."""
    return error.__traceback__.tb_frame.f_code.co_filename if error.__traceback__ is not None else ""
