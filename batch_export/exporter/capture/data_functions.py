"""Functions of torch that look at data while they are computed, in terms of operators that need not.

Nothing arrives. Leaves: a context in which `torch.equal` and `torch.allclose` give a truth value that the program
computes, `cov`, `corrcoef` and `gaussian_nll_loss` check no data, `narrow` takes a tensor as its start, `combinations`
picks places that are known, `one_hot` has as many classes as the data, `istft` does not ask whether its windows leave
a gap, `reshape` beside a -1 has no size of 0, and `.data` is a view that is followed. What a model decides by such a
truth value is a decision by data, as before.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from batch_export.exporter.capture import byte_masks, layout_questions
from batch_export.exporter.capture.calls_without_numbers import ANSWERED_OTHERWISE, note
from batch_export.exporter.capture.ctc_losses import ctc_loss
from batch_export.exporter.capture.free_forms import of_free_sizes
from batch_export.exporter.capture.inverse_stft import istft
from batch_export.exporter.capture.transforms import is_of_transform

_DATA_OF = "_whose_data_it_is"
"""An attribute of what `.data` gives."""
_MOST_PLACES = 1 << 16
"""Larger lists of combinations are not written into a file."""


def _equal(input: torch.Tensor, other: torch.Tensor) -> object:
    """False for other shapes, as in torch; where sizes are free, they and the elements of both are compared."""
    if input.dim() != other.dim():
        return False
    pairs = list(zip(input.shape, other.shape, strict=True))
    if any(statically_known_true(one != two) for one, two in pairs):
        return False
    alike = []
    for axis, (one, two) in enumerate(pairs):
        if not statically_known_true(one == two):
            least: Any = torch.sym_min(one, two)
            input, other = input.narrow(axis, 0, least), other.narrow(axis, 0, least)
            alike.append(torch.eq(*(torch.scalar_tensor(size, dtype=torch.int64) for size in (one, two))))
    return torch.stack([torch.eq(input, other).all(), *alike]).all().item()


def _allclose(
    input: torch.Tensor, other: torch.Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> object:
    return torch.isclose(input, other, rtol, atol, equal_nan).all().item()


def _cov(
    input: torch.Tensor,
    *,
    correction: int = 1,
    fweights: torch.Tensor | None = None,
    aweights: torch.Tensor | None = None,
) -> torch.Tensor:
    """The covariances of variables in rows; without degrees of freedom infinite or NaN, as in torch."""
    data = input.reshape(1, -1) if input.dim() < 2 else input
    count: Any = data.shape[1]
    weights = fweights
    if aweights is not None:
        weights = aweights if fweights is None else fweights * aweights
    if weights is None:
        mean = data.sum(1) / count
        freedom: Any = torch.sym_max(count - correction, 0)
    else:
        total = weights.sum()
        mean = (data * weights).sum(1) / total
        scale = correction if aweights is None or not correction else correction * (weights * aweights).sum() / total
        freedom = (total - scale).clamp(min=0)
    centred = data - mean.unsqueeze(1)
    weighted = centred if weights is None else centred * weights
    found: torch.Tensor = torch.mm(centred, weighted.t().conj()) / freedom
    return found.reshape([]) if data.shape[0] == 1 else found


def _corrcoef(input: torch.Tensor) -> torch.Tensor:
    found = _cov(input)
    if found.dim() == 0:
        return found / found
    deviation = torch.sqrt(torch.diagonal(found))
    deviation = deviation.real if deviation.is_complex() else deviation
    scaled = found / deviation.unsqueeze(1) / deviation.unsqueeze(0)
    if not scaled.is_complex():
        return scaled.clamp(-1, 1)
    return torch.complex(scaled.real.clamp(-1, 1), scaled.imag.clamp(-1, 1))


def _combinations(input: torch.Tensor, r: int = 2, with_replacement: bool = False) -> torch.Tensor | None:
    length: Any = input.shape[0]
    if not isinstance(length, int) or r < 1:
        return None
    if math.comb(length + (r - 1 if with_replacement else 0), r) * r > _MOST_PLACES:
        return None
    chosen = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    places = list(chosen(range(length), r))
    return input[torch.tensor(places, dtype=torch.int64, device=input.device).reshape(-1, r)]


def _narrow(input: torch.Tensor, dim: int, start: Any, length: Any) -> torch.Tensor | None:
    if not isinstance(start, torch.Tensor):
        return None
    first = torch.where(start < 0, start + input.shape[dim], start)
    return input.index_select(dim, first.reshape(1).to(input.device) + torch.arange(length, device=input.device))


def _one_hot(tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor | None:
    """Of as many classes as the data have."""
    if num_classes != -1 or statically_known_true(tensor.numel() == 0):
        return None
    classes: Any = tensor.max().item() + 1
    torch._check(classes >= 1)
    found: torch.Tensor = tensor.unsqueeze(-1).eq(torch.arange(classes, device=tensor.device)).to(torch.int64)
    return found


def _bincount(input: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0) -> torch.Tensor | None:
    """Of nothing: integers whatever the weights are, of which torch's capture does not know."""
    if weights is None or not statically_known_true(input.numel() == 0):
        return None
    return torch.zeros(minlength, dtype=torch.int64, device=input.device)


def _data(tensor: torch.Tensor) -> torch.Tensor | None:
    """A view: torch's capture keeps no track of where `.data` comes from, neither of what is written to it."""
    if is_of_transform(tensor):  # which eager refuses
        return None
    made = tensor.detach()
    setattr(made, _DATA_OF, weakref.ref(tensor))
    return made


def _set_data(tensor: torch.Tensor, value: torch.Tensor) -> torch.Tensor | None:
    """What `weight.data *= mask` ends with is done already; torch's capture takes the tensor for another one there."""
    whose = getattr(value, _DATA_OF, None)
    is_own = whose is not None and whose() is tensor
    return tensor if is_own and value.dim() == tensor.dim() and value.dtype == tensor.dtype else None


def _itself(self: torch.Tensor) -> torch.Tensor:
    """What `lift_fresh` gives in eager; torch's capture makes a copy of it."""
    return self


_REPLACED: Mapping[object, Callable[..., object]] = {
    torch.Tensor.data.__get__: _data,  # type: ignore[attr-defined]
    torch.Tensor.data.__set__: _set_data,  # type: ignore[attr-defined]
    torch.ops.aten.lift_fresh: _itself,
    torch.ops.aten.lift_fresh.default: _itself,
    torch.equal: _equal,
    torch.Tensor.equal: _equal,
    torch.allclose: _allclose,
    torch.Tensor.allclose: _allclose,
    torch.cov: _cov,
    torch.Tensor.cov: _cov,
    torch.corrcoef: _corrcoef,
    torch.Tensor.corrcoef: _corrcoef,
    torch._C._nn.one_hot: _one_hot,
    torch.bincount: _bincount,
    torch.Tensor.bincount: _bincount,
    torch.combinations: _combinations,
    torch.ctc_loss: ctc_loss,
    functional.ctc_loss: ctc_loss,
    torch.istft: istft,
    torch.Tensor.istft: istft,
    torch.narrow: _narrow,
    torch.Tensor.narrow: _narrow,
}
_SHAPING = frozenset((torch.reshape, torch.Tensor.reshape, torch.Tensor.view))
_CHECKING = functional.gaussian_nll_loss
"""It raises where a variance is negative; nothing else in it goes by the data."""


class _DataFunctions(TorchFunctionMode):
    """Hands calls of these functions to their forms above; a form gives None for what torch takes by itself.

    Args:
        with_free_forms: whether forms for free sizes are given too, which sizes by data need.
    """

    def __init__(self, *, with_free_forms: bool) -> None:
        super().__init__()
        self._with_free_forms = with_free_forms

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Called by torch for every function of its own."""
        del types
        given, args = dict(kwargs or {}), byte_masks.as_truths(func, args)
        if func is _CHECKING:
            return _unchecked(args, given)
        if func in _SHAPING:
            _hold_to_elements(args[1:])
        form = _REPLACED.get(func)
        if form is not None and _fits(form, args, given):
            made = form(*args, **given)
            if made is not None:
                return made
        if self._with_free_forms and (made := of_free_sizes(func, args, given)) is not None:
            return made
        name = getattr(func, "__name__", "")
        if name in layout_questions.NOTED and not torch.compiler.is_dynamo_compiling():  # which follows this code, too
            layout_questions.note(name)
        if name in ANSWERED_OTHERWISE:
            note(failed=False)
        try:
            return func(*args, **given)
        except Exception:
            note(failed=True)
            raise


def _unchecked(args: Sequence[Any], given: Mapping[str, Any]) -> Any:
    """The loss, with `torch.any`, which it asks once and raises for, standing for False."""
    own: Any = torch.any
    torch.any = lambda *_: False  # type: ignore[assignment]
    try:
        return _CHECKING(*args, **given)
    finally:
        torch.any = own


def _hold_to_elements(shape: Sequence[Any]) -> None:
    """Tells torch that sizes that go by the data are no 0 beside a -1: eager refuses what could be any size."""
    sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    others = [one for one in sizes if isinstance(one, torch.SymInt) and free_unbacked_symbols(one)]
    if others and any(type(one) is int and one == -1 for one in sizes):
        torch._check(math.prod(one for one in sizes if type(one) is not int or one != -1) != 0)


def _fits(form: Callable[..., object], args: Sequence[Any], given: Mapping[str, Any]) -> bool:
    try:
        inspect.signature(form).bind(*args, **given)
    except TypeError:  # `out=` and the like are torch's own business
        return False
    return True


def data_functions(*, with_free_forms: bool) -> contextlib.AbstractContextManager[object]:
    """Within, these functions need no data.

    Args:
        with_free_forms: whether functions whose own form fixes a free size have another one here, and not elsewhere.
    """
    return _DataFunctions(with_free_forms=with_free_forms)
