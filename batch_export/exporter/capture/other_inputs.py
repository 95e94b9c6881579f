"""Inputs with other values than the example's.

Arrives: the example inputs. Leaves: inputs of the same structure and dtypes, whose numbers stay within the example's
range. The same generator gives the same inputs. Other sizes are `other_sizes.py`'s business.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

Inputs = tuple[tuple[object, ...], dict[str, object]]

_WIDENED = ((0, 0), (-1, -1), (0, 0), (1, 1), (0, 0), (-1, 0), (0, 0), (-1, 1))
"""Steps beyond an example of one value, for each input in turn."""


def other_values(args: Sequence[object], kwargs: Mapping[str, object], count: int) -> Iterator[Inputs]:
    """Inputs of the example's sizes, spread over the range of the example's values, or a little more.

    Every other one has neighbours of what is one value throughout in the example; a model need not take these.
    """
    generator = torch.Generator().manual_seed(0)
    for widened in itertools.islice(itertools.cycle(_WIDENED), count):
        like = functools.partial(_like, generator=generator, widened=widened)
        yield pytree.tree_map_only(torch.Tensor, like, (tuple(args), dict(kwargs)))


def extreme_values(args: Sequence[object], kwargs: Mapping[str, object]) -> Iterator[Inputs]:
    """Inputs of the example's sizes that decide otherwise by data: the least, the largest and the negative numbers."""
    for of in (_least, _largest, _negative):
        yield pytree.tree_map_only(torch.Tensor, of, (tuple(args), dict(kwargs)))


_REACHES = (100.0, 0.01, 3.7, 17.3, 0.3)


def of_other_reach(args: Sequence[object], kwargs: Mapping[str, object]) -> Iterator[tuple[str, Inputs]]:
    """Inputs of the example's sizes whose fractions are larger or smaller: loops that end by them take more rounds."""
    for reach in _REACHES:

        def scaled(one: torch.Tensor, reach: float = reach) -> torch.Tensor:
            return one * reach if one.is_floating_point() and one.dtype.itemsize > 1 else one

        made: Inputs = pytree.tree_map_only(torch.Tensor, scaled, (tuple(args), dict(kwargs)))
        yield f"the example times {reach:g}", made


def of_unlike_rows(args: Sequence[object], kwargs: Mapping[str, object]) -> Iterator[tuple[str, Inputs]]:
    """Inputs of the example's sizes with far larger fractions, in all rows or in some: they pass most thresholds."""
    for words, scale in (("times 1e4", _all_rows), ("with every other row times 1e4", _every_other_row)):
        for sign in (1.0, -1.0):
            scaled = functools.partial(_scaled, scale=scale, sign=sign)
            yield f"the example {words}", pytree.tree_map_only(torch.Tensor, scaled, (tuple(args), dict(kwargs)))


def _scaled(tensor: torch.Tensor, scale: Callable[[torch.Tensor], torch.Tensor], sign: float) -> torch.Tensor:
    is_wide = tensor.is_floating_point() and tensor.dtype.itemsize > 2
    return tensor * scale(tensor).to(tensor.dtype) * sign if is_wide else tensor


def _all_rows(tensor: torch.Tensor) -> torch.Tensor:
    return torch.full((), 1e4)


def _every_other_row(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.dim():
        return torch.ones(())
    rows = torch.where(torch.arange(tensor.shape[0]) % 2 == 1, 1e4, 1.0)
    return rows.reshape(-1, *[1] * (tensor.dim() - 1))


def one_apart(args: Sequence[object], kwargs: Mapping[str, object]) -> Iterator[Inputs]:
    """Inputs of the example's sizes whose elements are all alike, or all but the first.

    What is selected by data (`x[x > 0]`, `torch.unique`) is of length 1 then, as which torch may have ruled out.
    """
    for first, rest in ((0, 0), (1, 0), (0, 1), (1, -1), (-1, 1)):
        of = functools.partial(_first_apart, first=first, rest=rest)
        yield pytree.tree_map_only(torch.Tensor, of, (tuple(args), dict(kwargs)))


def _first_apart(tensor: torch.Tensor, first: int, rest: int) -> torch.Tensor:
    made = _all_of(tensor, rest).flatten()
    made[:1] = _all_of(made[:1], first)
    return made.reshape(tensor.shape)


_DIGITS = (0, 1, -1, 8, -35, 1234567)


def other_digits(args: Sequence[object], kwargs: Mapping[str, object]) -> Iterator[Inputs]:
    """Inputs of the example's sizes and of one number each, whose text differs in sign, digits and length."""
    for number in _DIGITS:
        yield pytree.tree_map_only(torch.Tensor, functools.partial(_all_of, number=number), (tuple(args), dict(kwargs)))


def _all_of(tensor: torch.Tensor, number: int) -> torch.Tensor:
    return torch.zeros_like(tensor) + torch.tensor(number, device=tensor.device).to(tensor.dtype)


def _least(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype == torch.bool or not tensor.numel() or tensor.is_complex():
        return torch.zeros_like(tensor)
    return torch.full_like(tensor, tensor.min().item())


def _largest(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype == torch.bool or not tensor.numel() or tensor.is_complex():
        return torch.ones_like(tensor)
    return torch.full_like(tensor, tensor.max().item())


def _negative(tensor: torch.Tensor) -> torch.Tensor:
    return ~tensor if tensor.dtype == torch.bool else -tensor if tensor.is_floating_point() else tensor.clone()


def _like(tensor: torch.Tensor, generator: torch.Generator, widened: tuple[int, int]) -> torch.Tensor:
    return within(tensor, tensor.shape, generator, widened)


def within(
    example: torch.Tensor, shape: Sequence[int], generator: torch.Generator, widened: tuple[int, int] = (0, 0)
) -> torch.Tensor:
    """Numbers between the example's smallest and largest; truth values as often true as the example's.

    Args:
        example: what is imitated.
        shape: of the result.
        generator: of the numbers.
        widened: an example of one value says nothing of a range: by how many steps to go beyond it on either side.
    """
    if isinstance(example, FakeTensor):
        return example.new_empty(list(shape))
    return _within(example.detach().cpu(), shape, generator, widened).to(example.device)


def _within(
    example: torch.Tensor, shape: Sequence[int], generator: torch.Generator, widened: tuple[int, int]
) -> torch.Tensor:
    count = 1
    for size in shape:
        count *= size
    if not example.numel() or not count:
        return torch.zeros(list(shape), dtype=example.dtype)
    if example.dtype == torch.bool or example.is_complex() or not example.dtype.is_signed:
        picked = torch.randint(example.numel(), (count,), generator=generator)
        return example.reshape(-1)[picked].reshape(list(shape)).clone()
    if not example.is_floating_point():
        low, high = int(example.min()), int(example.max())
        if low == high and abs(low) < 2**30:
            low, high = low + widened[0], high + widened[1]
        numbers = torch.randint(low, high + 1, (count,), generator=generator) if high - low < 2**62 else None
        if numbers is None:
            picked = torch.randint(example.numel(), (count,), generator=generator)
            numbers = example.reshape(-1)[picked]
        return numbers.to(example.dtype).reshape(list(shape)).clone()
    values = example.double().reshape(-1)
    finite = values[values.isfinite()]
    if finite.numel() < values.numel() or not finite.numel():
        picked = torch.randint(values.numel(), (count,), generator=generator)
        return example.reshape(-1)[picked].reshape(list(shape)).clone()
    low_end, high_end = finite.min(), finite.max()
    if low_end == high_end:
        reach = 2 * low_end.abs().clamp(min=1.0)
        low_end, high_end = low_end + widened[0] * reach, high_end + widened[1] * reach
    spread = torch.rand(count, generator=generator, dtype=torch.float64) * (high_end - low_end) + low_end
    return spread.to(example.dtype).reshape(list(shape)).clone()  # a tensor of its own, no view


def repeated(example: torch.Tensor, shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    """The example's own elements: the first ones of a longer axis, all again for a shorter one.

    Args:
        example: what is imitated.
        shape: of the result.
        generator: of the thousandths by which floats differ from the example's.
    """
    if isinstance(example, FakeTensor):
        return example.new_empty(list(shape))
    return _repeated(example.detach().cpu(), shape, generator).to(example.device)


def _repeated(example: torch.Tensor, shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    if not example.numel():
        return torch.zeros(list(shape), dtype=example.dtype)
    is_byte = example.is_floating_point() and example.dtype.itemsize == 1
    made = example.view(torch.uint8) if is_byte else example
    for axis, size in enumerate(shape):
        made = made.index_select(axis, torch.arange(size) % made.shape[axis])
    if not made.is_floating_point():
        return made.clone().view(example.dtype)
    noise = torch.rand(list(shape), generator=generator, dtype=torch.float64) * 2 - 1
    return (made.double() * (1 + 1e-3 * noise)).to(example.dtype)
