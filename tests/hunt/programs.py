"""A program as data: inputs, steps and outputs; and its form as Python source, as a module and as arguments.

A `Program` arrives, source or live objects leave. Nothing is chosen, run or judged here.
"""

from __future__ import annotations

import linecache
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

Tensors = dict[str, torch.Tensor]
"""The value of each leaf by its name: one case."""

_PLACE = re.compile(r"\{(\d+)\}")
_WIDER = {"float16": "float64", "bfloat16": "float64", "float32": "float64", "complex64": "complex128"}
_FLOATS = re.compile(r"torch\.(float16|bfloat16|float32|complex64)\b")


_KEPT = 64
_FILES: list[str] = []
"""Names of the latest programs' files, whose lines Python knows: exporters name lines, and read functions."""


def _remember(filename: str) -> None:
    _FILES.append(filename)
    while len(_FILES) > _KEPT:
        oldest = _FILES.pop(0)
        if oldest not in _FILES:
            linecache.cache.pop(oldest, None)


@dataclass(frozen=True)
class Leaf:
    """A tensor that the program starts from.

    Attributes:
        name: of the variable.
        dtype: torch's name of it.
        shape: sizes, or the name of a free axis.
        layout: how its memory lies: `plain`, `permuted` or `strided`.
        is_buffer: whether the module holds it; otherwise it is an input.
        within: name of the buffer in whose memory it lies; its numbers are that one's, in its own shape.
        below: its numbers are indices below this; 0 for any numbers.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    layout: str = "plain"
    is_buffer: bool = False
    below: int = 0
    within: str = ""


@dataclass(frozen=True)
class Step:
    """One statement.

    Attributes:
        operator: the template that it was made from; steps are counted and told apart by it.
        code: the expression, with `{0}`, `{1}` for the variables in `reads`.
        reads: names of variables.
        writes: names that the result is given; none when the statement only writes into a tensor.
    """

    operator: str
    code: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """A whole program and how it is exported."""

    leaves: tuple[Leaf, ...]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    form: str = "tuple"
    nested: tuple[str, ...] = ()
    opset: int = 20
    allow_guards: bool = False

    @property
    def inputs(self) -> tuple[Leaf, ...]:
        """The inputs in the order in which torch flattens them."""
        plain = [leaf for leaf in self.leaves if not leaf.is_buffer and leaf.name not in self.nested]
        return (*plain, *(leaf for leaf in self.leaves if leaf.name in self.nested))

    @property
    def buffers(self) -> tuple[Leaf, ...]:
        """What the module holds."""
        return tuple(leaf for leaf in self.leaves if leaf.is_buffer)

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the free axes."""
        return tuple(sorted({size for leaf in self.leaves for size in leaf.shape if isinstance(size, str)}))

    @property
    def operators(self) -> tuple[str, ...]:
        """The distinct operators, sorted."""
        return tuple(sorted({step.operator for step in self.steps}))


def statement(step: Step, buffers: frozenset[str] = frozenset()) -> str:
    """The step as a line of Python."""
    names = [f"self.{name}" if name in buffers else name for name in step.reads]
    code = _PLACE.sub(lambda found: names[int(found.group(1))], step.code)
    return f"{', '.join(step.writes)} = {code}" if step.writes else code


def source(program: Program) -> str:
    """The module's class, `Model(**buffers)`."""
    held = frozenset(leaf.name for leaf in program.buffers)
    arguments = [leaf.name for leaf in program.inputs if leaf.name not in program.nested]
    arguments += ["nested"] if program.nested else []
    body = [f'{name} = nested["{name}"]' for name in program.nested]
    body += [statement(step, held) for step in program.steps]
    names = [f"self.{name}" if name in held else name for name in program.outputs]
    if program.form == "one" and len(names) == 1:
        body.append(f"return {names[0]}")
    elif program.form == "dict":
        items = ", ".join(f'"out{index}": {name}' for index, name in enumerate(names))
        body.append(f"return {{{items}}}")
    else:
        body.append(f"return ({', '.join(names)},)")
    lines = ["class Model(torch.nn.Module):"]
    if held:
        lines += ["    def __init__(self, **buffers):", "        super().__init__()"]
        lines += ["        for name, value in buffers.items():", "            self.register_buffer(name, value)", ""]
    lines += [f"    def forward({', '.join(['self', *arguments])}):", *(f"        {line}" for line in body)]
    return "\n".join(lines) + "\n"


def module(program: Program, values: Mapping[str, torch.Tensor], *, float64: bool = False) -> torch.nn.Module:
    """A fresh module; in float64 every float dtype that the program names is wider, as its buffers are."""
    text = source(program)
    if float64:
        text = _FLOATS.sub(lambda found: f"torch.{_WIDER[found.group(1)]}", text)
    filename = f"program_{zlib.crc32(text.encode()):08x}.py"
    _remember(filename)
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    namespace: dict[str, Any] = {"torch": torch, "F": torch.nn.functional, "math": __import__("math")}
    exec(compile(text, filename, "exec"), namespace)
    buffers: Tensors = {}
    for leaf in program.buffers:
        lies = buffers[leaf.within].view(values[leaf.name].shape) if leaf.within in buffers else None
        buffers[leaf.name] = fresh(values[leaf.name], float64) if lies is None else lies
    made: torch.nn.Module = namespace["Model"](**buffers)
    return made.eval()


def arguments(program: Program, values: Mapping[str, torch.Tensor], *, float64: bool = False) -> tuple[Any, ...]:
    """Fresh arguments of `forward`."""
    flat = {leaf.name: fresh(values[leaf.name], float64) for leaf in program.inputs}
    plain = [tensor for name, tensor in flat.items() if name not in program.nested]
    return (*plain, {name: flat[name] for name in program.nested}) if program.nested else tuple(plain)


def dynamic_shapes(program: Program) -> tuple[Any, ...] | None:
    """The free axes as `batch_export.export` takes them; None when there are none."""
    if not program.axes:
        return None
    of = {leaf.name: {i: size for i, size in enumerate(leaf.shape) if isinstance(size, str)} for leaf in program.inputs}
    plain = [axes for name, axes in of.items() if name not in program.nested]
    return (*plain, {name: of[name] for name in program.nested}) if program.nested else tuple(plain)


def fresh(tensor: torch.Tensor, float64: bool = False) -> torch.Tensor:
    """A copy with the same strides where they reach every element once; wider on demand."""
    dtype = _WIDER.get(str(tensor.dtype).removeprefix("torch.")) if float64 else None
    expanded = any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))
    if expanded or not tensor.numel():
        copy = tensor.clone(memory_format=torch.contiguous_format)
    else:
        copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor)
    return copy.to(getattr(torch, dtype)) if dtype else copy
