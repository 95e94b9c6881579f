"""Tensors that forward makes of Python's numbers stay known while torch captures, and are data once data is written.

Arrives: nothing; a context is opened round a capture. Leaves: torch as it was. A grid of patches or a list of lengths
that a model writes down and reads back (`for h, w in torch.tensor([[4, 6]])`, `.tolist()`) decides nothing by data, but
torch (2.13) forgets the values of constants of more than one element, and then takes what is read for data.

torch keeps such values twice. Those of fake tensors are dropped when something is written to the tensor or to a view of
it; those of the tracer are not when it is a view (`g = torch.tensor([3]); g[0] = x.sum(); int(g[0])` is 3 for ever), so
that the tracer keeps none here. And it takes memory that nobody has written to yet for the values of a constant: the
shape of a result may be worked out by `new_empty` of an argument (`torch.embedding`, by that of its table), so that it
would have such values. May go when torch knows constants of any size, and none of these.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental import proxy_tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

MOST_ELEMENTS = 4096
"""Larger ones are computed in the file only: every operator on a known constant also runs during capture."""

_LIMIT = "CONSTANT_NUMEL_LIMIT"
_LIMITS = ((fake_tensor, MOST_ELEMENTS), (proxy_tensor, 0))
_ATEN = torch.ops.aten
_UNWRITTEN = frozenset(
    overload
    for packet in (_ATEN.new_empty, _ATEN.new_empty_strided, _ATEN.empty_like, _ATEN.resize)
    for overload in (getattr(packet, name) for name in packet.overloads())
)
"""What makes tensors without values of another one."""


@contextlib.contextmanager
def known_constants() -> Iterator[None]:
    """While open, torch's captures remember the values of constants of up to `MOST_ELEMENTS` elements.

    NOTE: this replaces `FakeTensorMode.dispatch`.
    """
    before = [(owner, getattr(owner, _LIMIT)) for owner, _ in _LIMITS if hasattr(owner, _LIMIT)]
    modes: Any = FakeTensorMode
    own = modes.dispatch

    def dispatch(
        mode: FakeTensorMode, func: Any, types: Sequence[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        made = own(mode, func, types, args, kwargs)
        if func in _UNWRITTEN and isinstance(made, FakeTensor):
            made.constant = None
        return made

    try:
        for owner, limit in _LIMITS:
            setattr(owner, _LIMIT, limit)
        modes.dispatch = dispatch
        yield
    finally:
        modes.dispatch = own
        for owner, old in before:
            setattr(owner, _LIMIT, old)


_FACTORIES = frozenset({torch.arange, torch.zeros, torch.ones, torch.full})
_PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device, torch.layout)


class _KnownFactories(TorchFunctionMode):
    """Has `torch.arange(12)` and the like make the constant that `torch.tensor([0, 1, ...])` is."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:
        del types
        given = dict(kwargs or {})
        if func not in _FACTORIES or not _is_plain((*args, *given.values())):
            return func(*args, **given)
        with _disable_current_modes():
            made = func(*args, **given)
        if made.device.type != "cpu" or made.numel() > MOST_ELEMENTS:
            return func(*args, **given)
        known = torch.tensor(made.tolist(), dtype=made.dtype)
        return known if made.numel() else known.reshape(made.shape)


def _is_plain(values: Sequence[object]) -> bool:
    return all(_is_plain(one) if isinstance(one, (list, tuple)) else type(one) in _PLAIN for one in values)


def known_factories() -> contextlib.AbstractContextManager[object]:
    """Within, small tensors that factories make of Python's numbers are constants that `known_constants` remembers.

    The file holds their elements, so this is for programs that cannot be captured otherwise: what they compute of such
    tensors and read back (places of windows, lengths of sequences in a grid) would be a decision by data.
    """
    return _KnownFactories()
