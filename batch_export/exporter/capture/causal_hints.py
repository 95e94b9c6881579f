"""During capture, whether a mask is causal is a hint that torch.nn's transformers can do without.

Their layers compare a mask of free size with the causal one, for which there is one answer at every size or none, to
take a faster way to the same numbers. Where torch cannot tell without data, the mask is used as it is given.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.nn.modules import transformer

_NAME = "_detect_is_causal_mask"


@contextlib.contextmanager
def causal_hints(*, constants_are_known: bool) -> Iterator[None]:
    """While open, a mask of which the answer depends on data is taken for any mask.

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

    setattr(transformer, _NAME, detect)
    try:
        yield
    finally:
        setattr(transformer, _NAME, torchs)
