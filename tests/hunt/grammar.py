"""Templates of operators and how one becomes steps of a program.

A template is Python with holes. A family is a list of templates; several lines joined by `;` are written one after the
other, `!` before a line marks a statement that only writes into a tensor. Holes:

| hole | filled with |
|---|---|
| `{t}` `{f}` `{i}` `{b}` `{n}` `{z}` | a tensor: any, float, integer, bool, integer or float, complex |
| `{t2}` ... `{t4}`, `{f2}` ... `{f4}` | one with that many axes |
| `{w}` `{wf}` `{wi}` `{wb}` | one that broadcasts with the first tensor: any, float, integer, bool |
| `{x}` | one of the first tensor's dtype |
| `{0}` | the first tensor again |
| `{r}` `{q}` | the result of the line before, of the line before that |
| `{dim}` `{dims}` `{pos}` | an axis of the first tensor, some axes, an axis counted from the front |
| `{size}` | `.shape[k]` of the first tensor, a number of Python |
| `{d0}` `{d1}` ... `{dl}` | the literal size of an axis (`dl`: the last) |
| `{s}` `{sf}` `{si}` `{sp}` | a scalar: any, float, integer, positive integer |
| `{keep}` `{dt}` `{fdt}` `{idt}` | a bool, a dtype, a float dtype, an integer dtype |
| `{index}` | an index expression for the first tensor |
| `{new 3 d1}` | a new float leaf of that shape, in the first tensor's dtype; `{newi 3}` one of indices 0 and 1 |
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from hunt.programs import Leaf, Step

_HOLE = re.compile(r"\{([a-z0-9 ]+)\}")
_DTYPES = ("float32", "float64", "float16", "int32", "int64", "int8", "uint8", "int16", "bool", "bfloat16")
_SCALARS = (2, 3, -1, 0, 1, 0.5, -1.5, 2.0, True, 7, 1e-3, -0.0, float("inf"), 100)


@dataclass
class Environment:
    """What the program has so far: the variables with their values at each assignment of sizes."""

    rng: random.Random
    values: list[dict[str, torch.Tensor]]
    leaves: list[Leaf] = field(default_factory=list)
    count: int = 0

    @property
    def names(self) -> list[str]:
        """Variables, oldest first."""
        return list(self.values[0])

    def value(self, name: str) -> torch.Tensor:
        """Its value at the example sizes."""
        return self.values[0][name]

    def name(self, letter: str) -> str:
        """A name that is not taken."""
        self.count += 1
        return f"{letter}{self.count}"


class NoFitError(Exception):
    """The template has a hole for which the program has nothing."""


@dataclass
class Expansion:
    """Steps that a template became, and the leaves that it needs."""

    steps: list[Step] = field(default_factory=list)
    leaves: list[Leaf] = field(default_factory=list)


_KINDS: dict[str, Callable[[torch.Tensor], bool]] = {
    "t": lambda one: True,
    "f": lambda one: one.is_floating_point(),
    "i": lambda one: not one.is_floating_point() and not one.is_complex() and one.dtype != torch.bool,
    "b": lambda one: one.dtype == torch.bool,
    "n": lambda one: not one.is_complex() and one.dtype != torch.bool,
    "z": lambda one: one.is_complex(),
}


def line(template: str, environment: Environment, before: Sequence[str], expansion: Expansion) -> Step:
    """One line of a template as a step without names for its results.

    Raises:
        NoFitError: where there is no such tensor.
    """
    reads: list[str] = []
    filler = _Filler(environment, reads, before, expansion)
    code = _HOLE.sub(filler, template.strip().removeprefix("!"))
    return Step(template.strip(), code, tuple(reads), ())


class _Filler:
    """Fills the holes of one line from left to right."""

    def __init__(self, environment: Environment, reads: list[str], before: Sequence[str], expansion: Expansion) -> None:
        self.environment, self.rng, self.reads = environment, environment.rng, reads
        self.before, self.expansion = before, expansion

    def __call__(self, found: re.Match[str]) -> str:
        hole = found.group(1)
        if hole == "0":
            return "{0}"
        if hole in ("r", "q"):
            return self._read(self.before[-1 if hole == "r" else -2])
        if hole.startswith("new"):
            return self._new(hole.split())
        if hole[0] == "w":
            return self._read(self._like(hole[1:] or "t"))
        if hole == "x":
            return self._read(self._pick(lambda one: one.dtype == self.first.dtype))
        if hole[0] in _KINDS and (len(hole) == 1 or hole[1:].isdigit()):
            axes = int(hole[1:]) if len(hole) > 1 else None
            kind = _KINDS[hole[0]]
            return self._read(self._pick(lambda one: kind(one) and (axes is None or one.dim() == axes)))
        return self._plain(hole)

    @property
    def first(self) -> torch.Tensor:
        """The line's first tensor."""
        if not self.reads:
            raise NoFitError("a hole that depends on a tensor comes first")
        return self.environment.value(self.reads[0])

    def _read(self, name: str) -> str:
        if name not in self.reads:
            self.reads.append(name)
        return f"{{{self.reads.index(name)}}}"

    def _pick(self, fits: Callable[[torch.Tensor], bool]) -> str:
        """A variable that fits; later ones are likelier, so that programs become deep as well as wide."""
        names = [name for name in self.environment.names if fits(self.environment.value(name))]
        if not names:
            raise NoFitError("no such tensor")
        place = max(self.rng.randrange(len(names)), self.rng.randrange(len(names)))
        return names[place]

    def _like(self, kind: str) -> str:
        shape = self.first.shape

        def fits(one: torch.Tensor) -> bool:
            if not _KINDS[kind](one):
                return False
            try:
                torch.broadcast_shapes(shape, one.shape)
            except RuntimeError:
                return False
            return True

        return self._pick(fits)

    def _new(self, words: list[str]) -> str:
        shape = tuple(self.first.shape[_axis(word, self.first)] if word[0] == "d" else int(word) for word in words[1:])
        dtype = str(self.first.dtype).removeprefix("torch.") if words[0] == "new" else "int64"
        below = 2 if words[0] == "newi" else 0
        leaf = Leaf(self.environment.name("w"), dtype, shape, is_buffer=self.rng.random() < 0.5, below=below)
        self.expansion.leaves.append(leaf)
        self.reads.append(leaf.name)
        return f"{{{len(self.reads) - 1}}}"

    def _plain(self, hole: str) -> str:
        rng = self.rng
        if hole in ("dim", "pos"):
            axes = self.first.dim()
            if not axes:
                return "0"
            return str(rng.randrange(-axes if hole == "dim" else 0, axes))
        if hole == "dims":
            axes = self.first.dim()
            chosen = sorted(rng.sample(range(axes), rng.randint(0, axes)))
            return str(tuple(axis - axes if rng.random() < 0.3 else axis for axis in chosen))
        if hole == "size":
            return f"{{0}}.shape[{rng.randrange(self.first.dim())}]" if self.first.dim() else "3"
        if hole[0] == "d" and (hole[1:].isdigit() or hole == "dl"):
            return str(self.first.shape[_axis(hole, self.first)])
        if hole == "index":
            return _index(self.first, rng)
        return self._scalar(hole)

    def _scalar(self, hole: str) -> str:
        rng = self.rng
        if hole == "s":
            return _number(rng.choice(_SCALARS))
        if hole == "sf":
            return repr(rng.choice((0.5, -1.5, 2.0, 0.1, 3.25, 1.0, 0.0, -0.7)))
        if hole == "si":
            return repr(rng.choice((-2, -1, 0, 1, 2, 3, 5)))
        if hole == "sp":
            return repr(rng.choice((1, 2, 3)))
        if hole == "keep":
            return repr(rng.random() < 0.5)
        dtypes = {"dt": _DTYPES, "fdt": ("float32", "float64", "float16"), "idt": ("int64", "int32", "int8", "uint8")}
        return f"torch.{rng.choice(dtypes[hole])}"


def _number(scalar: float | bool) -> str:
    return "math.inf" if scalar == float("inf") else repr(scalar)


def _axis(word: str, first: torch.Tensor) -> int:
    axis = first.dim() - 1 if word == "dl" else int(word[1:])
    if not 0 <= axis < first.dim():
        raise NoFitError(f"no axis {word}")
    return axis


def _index(first: torch.Tensor, rng: random.Random) -> str:
    """`[...]` with numbers, slices, None, Ellipsis; sizes are left to the sizes of every assignment."""
    parts: list[str] = []
    for axis in range(rng.randint(0, first.dim())):
        size = first.shape[axis]
        kind = rng.random()
        if kind < 0.2 and size:
            parts.append(str(rng.randrange(-size, size)))
        elif kind < 0.75:
            ends = ["" if rng.random() < 0.5 else str(rng.randint(-size - 1, size + 1)) for _ in range(2)]
            step = rng.choice(("", "", ":2", ":3"))
            parts.append(f"{ends[0]}:{ends[1]}{step}")
        else:
            parts.append(":")
    if rng.random() < 0.2:
        parts.insert(rng.randint(0, len(parts)), "None")
    if rng.random() < 0.2:
        parts.append("...")
    return ", ".join(parts) or "..."
