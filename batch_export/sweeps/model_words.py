"""A model described in words: `pkg:factory`, a file or a folder, and `--input x=float32[batch,3,H=64,W=64]`.

Words arrive, the question leaves that a child is asked about the model (`runner/probe.py`). Nothing is imported or run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from batch_export.config.model import DTYPES
from batch_export.errors import UsageError
from batch_export.spec import InputSpec
from batch_export.stages.probe_request import ProbeRequest
from batch_export.words import did_you_mean, nearest

FILES = (".pt2", ".pt", ".pth", ".ts")
"""Endings of files that hold a program."""

_INPUT = re.compile(
    r"(?P<name>[^=\[\]]+)=(?P<dtype>\w+)\[(?P<shape>[^\[\]]*)\](?::(?P<low>-?[\d.]+)\.\.(?P<high>-?[\d.]+))?"
)
_CONSTANT = re.compile(r"(?P<name>[^=\[\]]+)=(?P<value>true|false|null|-?\d+(?:\.\d+)?)")
_SIZE = re.compile(r"(?P<axis>[A-Za-z_]\w*)(?:=(?P<size>[1-9]\d*))?|(?P<fixed>\d+)")
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*[.:][A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_EXAMPLE = 2
"""Stands for the size of an axis that was given none, until one is found at which the model runs."""


@dataclass(frozen=True, slots=True)
class Described:
    """Inputs in words.

    Attributes:
        inputs: the leaves, with names of axes in their shapes.
        sizes: an example size for each axis.
        unsized: axes that were given none.
    """

    inputs: tuple[InputSpec, ...] = ()
    sizes: dict[str, int] = field(default_factory=dict)
    unsized: tuple[str, ...] = ()


def request_of(name: str, source: str, inputs: Sequence[str], arguments: Sequence[str]) -> ProbeRequest:
    """Returns the question about a model.

    Args:
        name: of its config.
        source: `package.module:factory`, or with a dot in place of the colon; a file, or the folder of a checkpoint.
        inputs: such as `x=float32[batch,3,H=64,W=64]` or `ids=int64[batch,seq=16]:0..1000`; the same axis may stand in
            several. None at all: they are to be found.
        arguments: such as `width=8`.

    Raises:
        UsageError: a word cannot be read, or they do not fit together; one sentence.
    """
    described = inputs_of(inputs)
    given = _arguments(arguments)
    target, path = _source(source)
    if path and given and not Path(path).is_dir():
        raise UsageError(f"{path} is a file, and takes no --arg. Next step: leave {', '.join(given)} out")
    return ProbeRequest(name, target, path, given, described.inputs, described.sizes, described.unsized)


def name_of(source: str) -> str:
    """A name for the model of a source."""
    path = Path(source)
    is_file = path.suffix in FILES or path.exists()
    last = path.resolve().name.removesuffix(path.suffix) if is_file else re.split(r"[.:]", source)[-1]
    return re.sub(r"\W", "_", last) or "model"


def inputs_of(words: Sequence[str]) -> Described:
    """Reads the words of inputs.

    Raises:
        UsageError: one cannot be read; one sentence.
    """
    leaves: list[InputSpec] = []
    sizes: dict[str, int | None] = {}
    for word in words:
        leaf = _input(word, sizes)
        if any(leaf.path == other.path for other in leaves):
            raise UsageError(f"--input {word!r}: this input is described twice")
        leaves.append(leaf)
    unsized = tuple(axis for axis, size in sizes.items() if size is None)
    return Described(tuple(leaves), {axis: size or _EXAMPLE for axis, size in sizes.items()}, unsized)


def _source(word: str) -> tuple[str, str]:
    """A target, or a path; the other is empty."""
    path = Path(word)
    if path.suffix in FILES or "/" in word or path.exists():
        if not path.exists():
            folder = path.parent if path.parent.is_dir() else Path()
            near = nearest(path.name, [entry.name for entry in folder.iterdir()], 1)
            hint = f"; did you mean {folder / near[0]}?" if near else ""
            raise UsageError(f"there is no file or folder {word}{hint}")
        if path.is_file() and path.suffix not in FILES:
            raise UsageError(
                f"{word} is not a program: what can be read is {', '.join(FILES)} and the folder of a checkpoint. "
                "Next step: name the function that makes the model: package.module:function"
            )
        return "", word
    if not _DOTTED.fullmatch(word):
        raise UsageError(
            f"{word!r} names no function. Next step: write package.module:function, a .pt2 or .pt file, or a folder"
        )
    return word.replace(":", "."), ""


def _input(word: str, sizes: dict[str, int | None]) -> InputSpec:
    constant = _CONSTANT.fullmatch(word)
    if constant is not None:
        return InputSpec(_path(constant["name"]), constant=yaml.safe_load(constant["value"]))
    found = _INPUT.fullmatch(word)
    if found is None:
        raise UsageError(f"--input {word!r} cannot be read. Next step: write it as 'x=float32[batch,3,H=64,W=64]'")
    if found["dtype"] not in DTYPES:
        raise UsageError(
            f"--input {word!r}: no dtype is called {found['dtype']!r}{did_you_mean(found['dtype'], DTYPES)}"
        )
    shape = tuple(_dimension(word, text.strip(), sizes) for text in found["shape"].split(",") if text.strip())
    try:
        low, high = (float(found[bound]) if found[bound] else None for bound in ("low", "high"))
    except ValueError as error:
        raise UsageError(f"--input {word!r}: a range is written as 0..1000") from error
    return InputSpec(_path(found["name"]), found["dtype"], shape, low, high)


def _path(name: str) -> tuple[str | int, ...]:
    """`state.h` and `layers.0` are places in dicts and lists."""
    first, *rest = name.strip().split(".")
    return (first, *(int(step) if step.isdigit() else step for step in rest))


def _dimension(word: str, text: str, sizes: dict[str, int | None]) -> int | str:
    found = _SIZE.fullmatch(text)
    if found is None:
        raise UsageError(f"--input {word!r}: {text!r} is neither a size nor an axis, which is a word such as H or H=64")
    if found["fixed"]:
        return int(found["fixed"])
    axis, size = found["axis"], int(found["size"]) if found["size"] else None
    if size and sizes.get(axis) not in (None, size):
        raise UsageError(f"--input {word!r}: the axis {axis} has the size {sizes[axis]} elsewhere")
    sizes[axis] = size or sizes.get(axis)
    return axis


def _arguments(words: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"--arg {word!r} cannot be read. Next step: write it as width=8")
        try:
            found[name] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise UsageError(f"--arg {word!r}: YAML cannot read {value!r}") from error
    return found
