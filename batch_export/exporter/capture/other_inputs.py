"""Inputs other than the example: of the same sizes with other values, and of other sizes where axes are free.

Arrives: the example inputs, and a captured program for what its axes may be. Leaves: inputs of the same structure and
dtypes, whose numbers stay within the example's range. The same generator gives the same inputs.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch.utils import _pytree as pytree

from batch_export.exporter.capture.dynamic_shapes import user_tensors
from batch_export.exporter.capture.guards import environment_of

if TYPE_CHECKING:
    from batch_export.exporter.capture.captured import Captured

Inputs = tuple[tuple[Any, ...], dict[str, Any]]

_STEPS = (1, 2, 3, 4, 8, 16, 32, 64)
"""What the first free axis grows by, in turn; the second one by twice that, and so on."""
_WIDENED = ((0, 0), (-1, -1), (0, 0), (1, 1), (0, 0), (-1, 0), (0, 0), (-1, 1))
"""Steps beyond an example of one value, for each input in turn."""
_BEYOND = 2
"""Sizes tried beyond a limit, below and above the example's."""
_FEW = 16
"""The largest size that counts as small, and about how many are tried where two axes make many."""
_TRIED = {1: (*range(2, 301), 512, 1024, 2048, 4096), 2: (*range(2, 41), 64, 300), 3: (*range(2, 10), 12, 17, 64)}
"""Number of axes in a condition -> the sizes of each that it is looked at for."""
_ELEMENTS = 2**24
"""The largest input that is made up."""


def other_values(args: Sequence[Any], kwargs: Mapping[str, Any], count: int) -> Iterator[Inputs]:
    """Inputs of the example's sizes, spread over the range of the example's values, or a little more.

    Every other one has neighbours of what is one value throughout in the example; a model need not take these.
    """
    generator = torch.Generator().manual_seed(0)
    for widened in itertools.islice(itertools.cycle(_WIDENED), count):
        like = functools.partial(_like, generator=generator, widened=widened)
        yield pytree.tree_map_only(torch.Tensor, like, (tuple(args), dict(kwargs)))


def _like(tensor: torch.Tensor, generator: torch.Generator, widened: tuple[int, int]) -> torch.Tensor:
    return _within(tensor, tensor.shape, generator, widened)


class _Resized:
    """Example inputs whose free axes may be given other sizes.

    Attributes:
        example: symbol of a free axis -> its size in the example; empty where nothing can be resized.
    """

    def __init__(self, captured: Captured, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._leaves, self._tree = pytree.tree_flatten((tuple(args), dict(kwargs)))
        self._positions = [index for index, leaf in enumerate(self._leaves) if isinstance(leaf, torch.Tensor)]
        wanted = [fake for _, fake in user_tensors(captured.program)]
        self._expressions = [[_expression(size) for size in fake.shape] for fake in wanted]
        self._generator = torch.Generator().manual_seed(0)
        self.example: dict[Any, int] = {}
        if len(self._positions) != len(wanted):
            return
        used = {s for axes in self._expressions for axis in axes for s in getattr(axis, "free_symbols", ())}
        example = {
            axis: self._leaves[position].shape[at]
            for position, axes in zip(self._positions, self._expressions, strict=True)
            for at, axis in enumerate(axes)
            if axis in used
        }
        if set(example) == used:
            self.example = {symbol: example[symbol] for symbol in sorted(used, key=str)}

    def at(self, sizes: Mapping[Any, int]) -> Inputs | None:
        """The inputs at other sizes; None where an axis would have less than nothing, or far too much."""
        shapes = [
            [int(axis.xreplace(sizes)) if _is_free(axis) else axis for axis in axes] for axes in self._expressions
        ]
        if min(size for shape in shapes for size in (*shape, 1)) < 0:
            return None
        if max((math.prod(shape) for shape in shapes), default=0) > _ELEMENTS:
            return None
        made = list(self._leaves)
        for position, shape in zip(self._positions, shapes, strict=True):
            if list(self._leaves[position].shape) != shape:
                made[position] = _within(self._leaves[position], shape, self._generator)
        inputs: Inputs = pytree.tree_unflatten(made, self._tree)
        return inputs


def other_sizes(captured: Captured, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Inputs]]:
    """Inputs at other sizes of the free axes that the program's guards allow, with the sizes in words."""
    resized = _Resized(captured, args, kwargs)
    names = {symbol: captured.axis_names.get(str(symbol), str(symbol)) for symbol in resized.example}
    order = list(dict.fromkeys(names.values()))
    for step in (*_STEPS, -1) if names else ():
        sizes = {symbol: size + step * (1 + order.index(names[symbol])) for symbol, size in resized.example.items()}
        if min(sizes.values()) < 2 or not _allowed(captured, sizes):
            continue
        made = resized.at(sizes)
        if made is not None:
            yield ", ".join(f"{names[symbol]}={size}" for symbol, size in sizes.items()), made


def at_sizes(
    captured: Captured, args: Sequence[Any], kwargs: Mapping[str, Any], sizes: Mapping[str, int]
) -> Inputs | None:
    """Inputs at given sizes of some axes, by torch's symbols, and of the example's for the rest; None where not."""
    resized = _Resized(captured, args, kwargs)
    wanted = {symbol: sizes.get(str(symbol), size) for symbol, size in resized.example.items()}
    return resized.at(wanted) if wanted and wanted != resized.example else None


def sizes_beyond(
    captured: Captured, expression: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[Inputs]:
    """Inputs at the nearest sizes for which a condition on sizes is false: below and above the example's."""
    resized = _Resized(captured, args, kwargs)
    symbols = [symbol for symbol in resized.example if symbol in expression.free_symbols]
    for several in [[symbol] for symbol in symbols] + ([symbols] if len(symbols) > 1 else []):
        for direction in (-1, 1):
            count = 0
            for distance in (*range(1, 301), 512, 1024, 2048, 4096):
                sizes = {symbol: size + direction * distance for symbol, size in resized.example.items()}
                sizes = {**resized.example, **{symbol: sizes[symbol] for symbol in several}}
                if min(sizes.values()) < 2 or count == _BEYOND:
                    break
                made = resized.at(sizes) if expression.xreplace(sizes) == False else None  # noqa: E712
                if made is not None:
                    count += 1
                    yield made


def all_sizes_against(
    captured: Captured, expression: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[Inputs] | None:
    """Inputs at the sizes for which a condition on sizes is false, where these are few and small.

    Returns:
        One for each size if the condition has one axis, a spread of them if it has more; None where the sizes are many,
        or not all small, or it cannot be told.
    """
    resized = _Resized(captured, args, kwargs)
    symbols = sorted(expression.free_symbols, key=str)
    if not 1 <= len(symbols) <= len(_TRIED) or not set(symbols) <= set(resized.example):
        return None
    against: list[tuple[int, ...]] = []
    for chosen in itertools.product(_TRIED[len(symbols)], repeat=len(symbols)):
        truth = expression.xreplace(dict(zip(symbols, map(sympy.Integer, chosen), strict=True)))
        if truth == False:  # noqa: E712  (a sympy value)
            against.append(chosen)
        elif truth != True:  # noqa: E712
            return None
    if any(min(chosen) > _FEW for chosen in against):
        return None
    step = max(1, len(against) // _FEW)
    made = [resized.at({**resized.example, **dict(zip(symbols, chosen, strict=True))}) for chosen in against[::step]]
    return [one for one in made if one is not None]


def _is_free(size: Any) -> bool:
    """Whether a size is an expression of free axes."""
    return bool(getattr(size, "free_symbols", None))


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else int(size)


def _allowed(captured: Captured, sizes: Mapping[Any, int]) -> bool:
    """Whether the program holds at these sizes, by its ranges and its guards."""
    for symbol, bounds in captured.program.range_constraints.items():
        if symbol in sizes and not bounds.lower <= sizes[symbol] <= bounds.upper:
            return False
    environment = environment_of(captured.program)
    guards = [] if environment is None else environment.guards
    return all(guard.expr.xreplace(dict(sizes)) != False for guard in guards)  # noqa: E712  (a sympy value)


def _within(
    example: torch.Tensor, shape: Sequence[int], generator: torch.Generator, widened: tuple[int, int] = (0, 0)
) -> torch.Tensor:
    """Numbers between the example's smallest and largest; truth values as often true as the example's.

    Args:
        example: what is imitated.
        shape: of the result.
        generator: of the numbers.
        widened: an example of one value says nothing of a range: by how many steps to go beyond it on either side.
    """
    count = 1
    for size in shape:
        count *= size
    if not example.numel() or not count:
        return torch.zeros(list(shape), dtype=example.dtype)
    if example.dtype == torch.bool or example.is_complex() or not example.dtype.is_signed:
        picked = torch.randint(example.numel(), (count,), generator=generator)
        return example.detach().reshape(-1)[picked].reshape(list(shape)).clone()
    if not example.is_floating_point():
        low, high = int(example.min()), int(example.max())
        if low == high and abs(low) < 2**30:
            low, high = low + widened[0], high + widened[1]
        numbers = torch.randint(low, high + 1, (count,), generator=generator) if high - low < 2**62 else None
        if numbers is None:
            picked = torch.randint(example.numel(), (count,), generator=generator)
            numbers = example.detach().reshape(-1)[picked]
        return numbers.to(example.dtype).reshape(list(shape))
    values = example.detach().double().reshape(-1)
    finite = values[values.isfinite()]
    if finite.numel() < values.numel() or not finite.numel():
        picked = torch.randint(values.numel(), (count,), generator=generator)
        return example.detach().reshape(-1)[picked].reshape(list(shape)).clone()
    low_end, high_end = finite.min(), finite.max()
    if low_end == high_end:
        reach = 2 * low_end.abs().clamp(min=1.0)
        low_end, high_end = low_end + widened[0] * reach, high_end + widened[1] * reach
    spread = torch.rand(count, generator=generator, dtype=torch.float64) * (high_end - low_end) + low_end
    return spread.to(example.dtype).reshape(list(shape))
