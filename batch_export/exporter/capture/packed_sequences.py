"""During capture, packed sequences keep the lengths of their sequences, so that recurrent layers can take them.

torch packs a padded batch into the elements within the lengths, and counts in `batch_sizes` how many sequences are left
at each step. These counts are data, and layers read the first of them as the size of the batch, so that no capture of
torch's gets through. While `packed_sequences` is open, `batch_sizes` is an object that knows the batch and the lengths
as well; recurrent layers over it are one operator, which ONNX's own take the lengths for. What is done with a packed
sequence's `data` in between is done with the very elements that torch has there, in its order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import _VF
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules import rnn
from torch.utils import _pytree as pytree

from batch_export.exporter.capture.recurrent_shapes import results

_LIBRARY = torch.library.Library("batch_export_recurrent", "DEF")
_STATES = {"lstm": "Tensor[]", "gru": "Tensor", "rnn_tanh": "Tensor", "rnn_relu": "Tensor"}
_PACK, _PAD = "_pack_padded_sequence", "_pad_packed_sequence"


class _Longest:
    """The length of the longest sequence of a batch, which is data: as large as it has to be."""

    def __gt__(self, other: object) -> bool:
        return False


class _BatchSizes:
    """What stands for `PackedSequence.batch_sizes`.

    Args:
        inside: `bool[steps, batch]`, which elements of the padded batch are within their sequence.
        lengths: `int64[batch]`, in falling order.
    """

    device = torch.device("cpu")

    def __init__(self, inside: torch.Tensor, lengths: torch.Tensor) -> None:
        self.inside, self.lengths = inside, lengths
        flat = inside.flatten()
        self._kept = flat.nonzero().squeeze(1)
        self._places = (flat.cumsum(0) - 1).clamp(min=0)
        self._known: list[tuple[torch.Tensor, torch.Tensor]] = []

    def packed(self, padded: torch.Tensor) -> torch.Tensor:
        """Of `[steps, batch, ...]` the elements within the lengths, one step after the other."""
        data = padded.clone(memory_format=torch.contiguous_format).flatten(0, 1).index_select(0, self._kept)
        self._known.append((data, padded))
        return data

    def padded(self, data: torch.Tensor, value: float) -> torch.Tensor:
        """What `packed` was given, with `value` in the place of what is outside."""
        found = next((padded for known, padded in self._known if known is data), None)
        if found is None:
            found = data.index_select(0, self._places).unflatten(0, self.inside.shape)
        inside = self.inside.reshape(*self.inside.shape, *[1] * (found.dim() - 2))
        return torch.where(inside, found, torch.full((), value, dtype=found.dtype, device=found.device))

    def size(self, dim: int = 0) -> object:
        """The number of steps of the longest sequence."""
        return _Longest()

    def longest(self) -> Any:
        """The same as a size."""
        found: Any = self.lengths.max().item()
        torch._check(found >= 1)
        torch._check(found <= self.inside.shape[0])
        return found

    def counts(self) -> torch.Tensor:
        """What torch has: `int64[longest]`."""
        return self.inside.sum(1).narrow(0, 0, self.longest())

    def __getitem__(self, index: Any) -> Any:
        """The first of the sizes is the batch; any other place is a tensor's."""
        return self.inside.shape[1] if index == 0 else self.counts()[index]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.counts(), name)


pytree.register_pytree_node(  # a model may return a packed sequence
    _BatchSizes,
    lambda sizes: ([sizes.counts()], None),
    lambda found, _: next(iter(found)),
    serialized_type_name="batch_export.BatchSizes",
)


def _pack(input: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> tuple[torch.Tensor, Any]:
    padded = input.transpose(0, 1) if batch_first else input
    inside = (torch.arange(padded.shape[0]).unsqueeze(1) < lengths.unsqueeze(0)).to(padded.device)
    sizes = _BatchSizes(inside, lengths)
    return sizes.packed(padded), sizes


def _pad(
    data: torch.Tensor, sizes: _BatchSizes, batch_first: bool, value: float, total: object
) -> tuple[torch.Tensor, torch.Tensor]:
    padded = sizes.padded(data, value)
    if isinstance(total, _Longest):
        padded = padded.narrow(0, 0, sizes.longest())
    else:
        more: Any = total - padded.shape[0]  # type: ignore[operator]  # a size, of which torch knows two kinds
        if not (isinstance(more, int) and more == 0):
            pads = [*[0] * (2 * padded.dim() - 1), more]
            padded = torch.nn.functional.pad(padded, pads, value=value)
    return (padded.transpose(0, 1) if batch_first else padded), sizes.lengths


def _layers(name: str) -> Callable[..., tuple[torch.Tensor, ...]]:
    operator = getattr(torch.ops.batch_export_recurrent, name).default

    def run(data: torch.Tensor, sizes: _BatchSizes, *rest: Any) -> tuple[torch.Tensor, ...]:
        output, *states = operator(sizes.padded(data, 0.0), sizes.lengths, *rest)
        return sizes.packed(output), *states

    return run


def _eager(name: str) -> Callable[..., tuple[torch.Tensor, ...]]:
    """What the operator computes: torch's own layers over what torch packs."""

    def run(input: torch.Tensor, lengths: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, ...]:
        data, sizes = torch._VF._pack_padded_sequence(input, lengths, False)
        output, *states = getattr(torch._C._VariableFunctions, name)(data, sizes, *rest)
        padded, _ = torch._VF._pad_packed_sequence(output, sizes, False, 0.0, input.shape[0])
        return padded, *states

    return run


def _shapes(
    input: torch.Tensor, lengths: torch.Tensor, hx: torch.Tensor | Sequence[torch.Tensor], *rest: Any
) -> tuple[torch.Tensor, ...]:
    return results(input, hx, bidirectional=rest[-1])


for _name, _state in _STATES.items():
    _LIBRARY.define(
        f"{_name}(Tensor input, Tensor lengths, {_state} hx, Tensor[] params, bool has_biases, int num_layers, "
        "float dropout, bool train, bool bidirectional) -> "
        f"({', '.join(['Tensor'] * (3 if _name == 'lstm' else 2))})"
    )
    _LIBRARY.impl(_name, _eager(_name), "CPU")
    torch.library.register_fake(f"batch_export_recurrent::{_name}", _shapes, lib=_LIBRARY)


@contextlib.contextmanager
def packed_sequences() -> Iterator[None]:
    """While open, traced packed sequences are of our making; real tensors go torch's own way."""
    functions: dict[str, Callable[..., Any]] = {_PACK: _pack, _PAD: _pad, **{one: _layers(one) for one in _STATES}}
    exchanged = {name: _either(ours, getattr(torch._C._VariableFunctions, name)) for name, ours in functions.items()}
    with _with_names(vars(_VF), exchanged), _with_names(vars(rnn), {"int": _Count}):  # found before the builtin
        yield


@contextlib.contextmanager
def _with_names(names: dict[str, Any], values: dict[str, Any]) -> Iterator[None]:
    before = {name: names[name] for name in values if name in names}
    names.update(values)
    try:
        yield
    finally:
        for name in values:
            del names[name]
        names.update(before)


def _either(ours: Callable[..., Any], torchs: Callable[..., Any]) -> Callable[..., Any]:
    def call(first: Any, second: Any, *rest: Any) -> Any:
        is_ours = isinstance(second, _BatchSizes) or (ours is _pack and isinstance(first, FakeTensor))
        return (ours if is_ours else torchs)(first, second, *rest)

    return call


class _Kind(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, int)


class _Count(int, metaclass=_Kind):
    """Python's `int`, which leaves symbolic sizes as they are."""

    def __new__(cls, value: Any) -> Any:
        return value if isinstance(value, torch.SymInt) else int(value)
