"""During capture, whether attention is causal is answered where torch itself gives no answer for a free size.

`is_causal=length > 1` is a truth value in eager. torch's function takes no comparison of free sizes for one: it is
given the answer, which leaves a guard as Python's `if` does.

torch.nn's transformers compare a mask of free size with the causal one, for which there is one answer at every size or
none, to take a faster way to the same numbers. Where torch cannot tell without data, the mask is used as it is given.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.nn import functional
from torch.nn.modules import transformer

_NAME = "_detect_is_causal_mask"
_IS_CAUSAL = 5
"""Its place among the arguments of attention."""


@contextlib.contextmanager
def causal_hints(*, constants_are_known: bool) -> Iterator[None]:
    """While open, attention is told whether it is causal, and a mask of which that depends on data is any mask.

    Args:
        constants_are_known: if not, this is for masks with a free size only, as others may be known to a later attempt.
    """
    torchs: Any = getattr(transformer, _NAME, None)
    if torchs is None:  # another torch
        yield
        return

    def detect(mask: torch.Tensor | None, is_causal: bool | None = None, size: Any = None) -> object:
        try:
            return torchs(mask, is_causal, size)
        except GuardOnDataDependentSymNode:
            if constants_are_known or (mask is not None and any(isinstance(one, torch.SymInt) for one in mask.shape)):
                return False
            raise

    attention = functional.scaled_dot_product_attention
    setattr(transformer, _NAME, detect)
    functional.scaled_dot_product_attention = _told(attention)
    try:
        yield
    finally:
        setattr(transformer, _NAME, torchs)
        functional.scaled_dot_product_attention = attention


def _told(attention: Any) -> Any:
    @functools.wraps(attention)
    def told(*args: Any, **given: Any) -> object:
        if isinstance(given.get("is_causal"), torch.SymBool):
            given["is_causal"] = bool(given["is_causal"])
        elif len(args) > _IS_CAUSAL and isinstance(args[_IS_CAUSAL], torch.SymBool):
            args = (*args[:_IS_CAUSAL], bool(args[_IS_CAUSAL]), *args[_IS_CAUSAL + 1 :])
        return attention(*args, **given)

    return told
