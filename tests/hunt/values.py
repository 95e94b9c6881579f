"""Values of a program's leaves: ordinary ones and those at which formulas break. One generator, one tensor."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

import torch

from hunt.programs import Leaf, Program, Tensors

MODES = ("plain", "special", "tiny", "large", "positive", "zeros", "limits")
"""`special` mixes NaN, infinities, zeros of both signs and numbers far apart; `limits` is for integers."""

_NAN, _INF = math.nan, math.inf
_SPECIAL = (_NAN, _INF, -_INF, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, -0.4, 2.5, -2.5, 1e-9, 3e4, -3e4, 88.0, -104.0, 3.0)
_HUGE = (1e20, -1e20, 3e38)
_INTEGERS = {
    "uint8": (0, 1, 2, 127, 128, 200, 254, 255),
    "int8": (-128, -127, -1, 0, 1, 3, 100, 127),
    "int16": (-32768, -1, 0, 1, 181, 300, 32767),
    "int32": (-(2**31), -1, 0, 1, 4097, 5001, 2**24 + 1, 46341, 2**31 - 1),
    "int64": (-(2**31) - 5, -1, 0, 1, 4097, 25010001, 2**24 + 1, 2**31 + 5, 3037000500, 2**53 + 1, -(2**62)),
}
FLOATS = ("float32", "float64", "float16", "bfloat16")


def case(program: Program, sizes: Mapping[str, int], mode: str, seed: int) -> Tensors:
    """One value for each leaf. Buffers are always the same plain values: they are part of the file."""
    found: Tensors = {}
    for leaf in program.leaves:
        shape = [sizes[size] if isinstance(size, str) else size for size in leaf.shape]
        chosen = "plain" if leaf.is_buffer else mode
        if leaf.within in found:
            found[leaf.name] = found[leaf.within].view(shape)
            continue
        found[leaf.name] = tensor(leaf, shape, chosen, random.Random(f"{seed} {leaf.name} {chosen} {shape}"))
    return found


def tensor(leaf: Leaf, shape: list[int], mode: str, rng: random.Random) -> torch.Tensor:
    """A tensor of the leaf's dtype and layout."""
    dtype = getattr(torch, leaf.dtype)
    count = math.prod(shape)
    if leaf.below:
        return torch.tensor(_indices(count, shape, leaf.below, rng), dtype=dtype).reshape(shape)
    if leaf.dtype == "bool":
        numbers: list[float | int | bool | complex] = [rng.random() < 0.5 for _ in range(count)]
    elif leaf.dtype == "complex64":
        numbers = [complex(_float(mode, rng, False), _float(mode, rng, False)) for _ in range(count)]
    elif leaf.dtype in FLOATS:
        numbers = [_float(mode, rng, leaf.dtype in ("float32", "float64")) for _ in range(count)]
    else:
        numbers = [_integer(leaf.dtype, mode, rng) for _ in range(count)]
    return laid_out(torch.tensor(numbers, dtype=dtype).reshape(shape), leaf.layout)


def _indices(count: int, shape: list[int], below: int, rng: random.Random) -> list[int]:
    """Indices; different ones along the last axis where it is short enough, so that no write meets another."""
    row = shape[-1] if shape else 1
    if not 0 < row <= below:
        return [rng.randrange(below) for _ in range(count)]
    return [index for _ in range(count // row) for index in rng.sample(range(below), row)]


def laid_out(plain: torch.Tensor, layout: str) -> torch.Tensor:
    """The same values with other strides."""
    if layout == "permuted" and plain.dim() > 1:
        order = list(range(plain.dim()))[::-1]
        return plain.permute(order).contiguous().permute(order)
    if layout == "strided" and plain.dim():
        wide = torch.zeros(*plain.shape[:-1], 2 * plain.shape[-1], dtype=plain.dtype)
        wide[..., ::2] = plain
        return wide[..., ::2]
    return plain


def _float(mode: str, rng: random.Random, wide: bool) -> float:
    if mode == "special":
        return rng.choice(_SPECIAL + _HUGE if wide and rng.random() < 0.3 else _SPECIAL)
    if mode == "tiny":
        return rng.choice((1, -1)) * 10.0 ** -rng.randint(3, 9 if wide else 4) * rng.randint(1, 9)
    if mode == "large":
        return rng.choice((1, -1)) * round(rng.uniform(4, 400), 1)
    if mode == "positive":
        return round(rng.uniform(2, 7), 1)
    if mode == "zeros":
        return rng.choice((0.0, -0.0))
    return round(rng.gauss(0.3, 1.5), 2)


def _integer(dtype: str, mode: str, rng: random.Random) -> int:
    if mode in ("special", "limits"):
        numbers = _INTEGERS[dtype]
        return rng.choice(numbers if mode == "special" else [number for number in numbers if number])
    if mode == "zeros":
        return 0
    if mode == "large":
        return rng.choice(_INTEGERS[dtype]) // 3 or 7
    return rng.randint(0 if dtype == "uint8" else -4, 9) if mode != "tiny" else rng.randint(1, 3)
