"""Convolutions of as many groups as a free size says: one for each element of the batch, by weights of its own.

So are those with a padding of free size, which ONNX's Conv has written in the file as well: they are padded before.

Arrives: `conv2d(x.view(1, batch * c, h, w), weights, groups=batch)` and the like. Leaves: the same as one product of
matrices for each group, of the elements below each place of the kernel: ONNX's Conv has its groups written in the file.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

_MOST_PLACES = 128
"""A kernel of more places is left to torch, and refused."""
_CONVOLVED = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_TRANSPOSED = ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")


def _convolved(rank: int) -> Callable[[Mapping[str, Any]], torch.Tensor | None]:
    plainly = (torch.conv1d, torch.conv2d, torch.conv3d)[rank - 1]

    def convolved(bound: Mapping[str, Any]) -> torch.Tensor | None:
        pads = _each(bound.get("padding", 0), rank)
        if isinstance(bound.get("groups", 1), int) and any(isinstance(pad, torch.SymInt) for pad in pads):
            padded = torch.nn.functional.pad(bound["input"], [pad for one in reversed(pads) for pad in (one, one)])
            made: torch.Tensor = plainly(**{**bound, "input": padded, "padding": 0})
            return made
        settings = _settings(bound, rank, stride=1, padding=0, dilation=1)
        if settings is None:
            return None
        strides, pads, dilations = settings
        weight = bound["weight"].reshape(bound["groups"], -1, *bound["weight"].shape[1:])
        widths = [width for pad in reversed(pads) for width in (pad, pad)]
        x = torch.nn.functional.pad(bound["input"], widths)
        return _by_groups(x, weight, bound.get("bias"), strides, dilations)

    return convolved


def _transposed(rank: int) -> Callable[[Mapping[str, Any]], torch.Tensor | None]:
    def convolved(bound: Mapping[str, Any]) -> torch.Tensor | None:
        settings = _settings(bound, rank, stride=1, padding=0, output_padding=0, dilation=1)
        if settings is None:
            return None
        strides, pads, further, dilations = settings
        x, weight, axes = bound["input"], bound["weight"], range(-rank, 0)
        for axis, stride in zip(axes, strides, strict=True):  # zeros between the elements
            length: Any = x.shape[axis]
            apart = torch.nn.functional.pad(x.movedim(axis, -1).unsqueeze(-1), [0, stride - 1]).flatten(-2)
            x = apart.narrow(-1, 0, (length - 1) * stride + 1).movedim(-1, axis)
        ends = [step * (size - 1) - pad for step, size, pad in zip(dilations, weight.shape[2:], pads, strict=True)]
        widths = [width for end, more in reversed(list(zip(ends, further, strict=True))) for width in (end, end + more)]
        weight = weight.reshape(bound["groups"], -1, *weight.shape[1:]).transpose(1, 2).flip(list(axes))
        return _by_groups(torch.nn.functional.pad(x, widths), weight, bound.get("bias"), [1] * rank, dilations)

    return convolved


def _settings(bound: Mapping[str, Any], rank: int, **usual: int) -> list[list[int]] | None:
    """What is given for each axis, or usual; None where the groups are known, or another number is not."""
    kernel = bound["weight"].shape[2:]
    are_known = bound["input"].dim() == rank + 2 and all(isinstance(size, int) for size in kernel)
    if not isinstance(bound.get("groups"), torch.SymInt) or not are_known or math.prod(kernel) > _MOST_PLACES:
        return None
    found = []
    for name, one in usual.items():
        found.append(_each(bound.get(name, one), rank))
    return found if all(isinstance(number, int) for numbers in found for number in numbers) else None


def _each(given: Any, rank: int) -> list[Any]:
    """A setting for each of the axes."""
    numbers = list(given) if isinstance(given, (tuple, list)) else [given]
    return numbers * rank if len(numbers) == 1 else numbers


def _by_groups(
    x: torch.Tensor, weight: torch.Tensor, bias: Any, strides: Sequence[int], dilations: Sequence[int]
) -> torch.Tensor:
    """Of a tensor with its padding, by weights of each group: group, outputs, inputs, kernel."""
    groups, outputs, inputs = weight.shape[:3]
    kernel = list(weight.shape[3:])
    lengths: list[Any] = [
        (size - step * (width - 1) - 1) // stride + 1
        for size, step, width, stride in zip(x.shape[2:], dilations, kernel, strides, strict=True)
    ]
    below = []
    for place in itertools.product(*map(range, kernel)):
        part = x
        for axis, (at, step, stride, length) in enumerate(zip(place, dilations, strides, lengths, strict=True), 2):
            part = part.narrow(axis, at * step, (length - 1) * stride + 1)
            part = part[(slice(None),) * axis + (slice(None, None, stride),)]
        below.append(part.reshape(x.shape[0], groups, inputs, math.prod(lengths)))
    columns = torch.stack(below, 3).flatten(2, 3)
    made = torch.matmul(weight.flatten(2), columns).reshape(x.shape[0], groups * outputs, *lengths)
    return made if bias is None else made + bias.reshape(-1, *[1] * len(lengths))


FORMS: Mapping[Any, tuple[Sequence[str], Callable[[Mapping[str, Any]], object]]] = {
    torch.conv1d: (_CONVOLVED, _convolved(1)),
    torch.conv2d: (_CONVOLVED, _convolved(2)),
    torch.conv3d: (_CONVOLVED, _convolved(3)),
    torch.conv_transpose1d: (_TRANSPOSED, _transposed(1)),
    torch.conv_transpose2d: (_TRANSPOSED, _transposed(2)),
    torch.conv_transpose3d: (_TRANSPOSED, _transposed(3)),
}
"""Function -> the names of its arguments by position, and its other form."""
