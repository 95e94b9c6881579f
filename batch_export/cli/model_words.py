"""A model described on the command line: `pkg:factory` and `--input x=float32[batch,3,H=64,W=64]`.

Words arrive, the content of a model's config leaves, as plain mappings and as YAML text. Nothing is imported or run.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from batch_export.config.model import DTYPES, model_spec
from batch_export.errors import UsageError
from batch_export.words import did_you_mean

_INPUT = re.compile(r"(?P<name>[^=\[\]]+)=(?P<dtype>\w+)\[(?P<shape>[^\[\]]*)\]")
_SIZE = re.compile(r"(?P<axis>[A-Za-z_]\w*)(?:=(?P<size>[1-9]\d*))?|(?P<fixed>\d+)")
_NAME = re.compile(r"\w+(?:-\w+)*")
_EXAMPLE = 2
"""Size of an axis that has none of its own."""


def add_model_words(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that describe a model's inputs and its builder's arguments."""
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=DTYPE[SIZES]",
        help="an argument of forward, e.g. 'x=float32[batch,3,H=64,W=64]': a word is a free axis, 64 its example size",
    )
    parser.add_argument(
        "--arg", action="append", default=[], metavar="NAME=VALUE", help="an argument of the builder, as YAML reads it"
    )


def config_of(target: str, inputs: Sequence[str], arguments: Sequence[str]) -> dict[str, Any]:
    """Returns the content of the config of a model.

    Args:
        target: `package.module:factory`, or with a dot in place of the colon.
        inputs: such as `x=float32[batch,3,H=64,W=64]`; the same axis may stand in several.
        arguments: such as `width=8`.

    Raises:
        UsageError: a word cannot be read, or they do not fit together; one sentence.
    """
    if not inputs:
        raise UsageError(
            "No input is described. Next step: --input 'x=float32[batch,3,H=64,W=64]' for each argument of forward"
        )
    leaves: dict[str, Any] = {}
    sizes: dict[str, int | None] = {}
    for word in inputs:
        found = _INPUT.fullmatch(word)
        if found is None:
            raise UsageError(f"--input {word!r} cannot be read. Next step: write it as 'x=float32[batch,3,H=64,W=64]'")
        if found["dtype"] not in DTYPES:
            raise UsageError(
                f"--input {word!r}: no dtype is called {found['dtype']!r}{did_you_mean(found['dtype'], DTYPES)}"
            )
        shape = [_dimension(word, text.strip(), sizes) for text in found["shape"].split(",") if text.strip()]
        leaves[found["name"].strip()] = {"dtype": found["dtype"], "shape": shape}
    config = {"_target_": target.replace(":", "."), **_arguments(arguments), "inputs": leaves}
    axes = {axis: _axis(size or _EXAMPLE) for axis, size in sizes.items()}
    return {**config, "axes": axes} if axes else config


def yaml_of(name: str, config: Mapping[str, Any]) -> str:
    """Returns the config as a file, with what each part is for.

    Raises:
        UsageError: the config cannot be meant.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot be the name of a model. Next step: take letters, digits, _ and -")
    model_spec(name, config)
    notes = {
        "_target_": "What is called for the module; further keys at this level are its arguments.",
        "inputs": "The arguments of forward: dtype, and a size or the name of a free axis for each dimension.",
        "axes": "Free axes: the size of the example, and other sizes that every file is run at.",
    }
    lines = []
    for key, value in config.items():
        if key in notes:
            lines.append(f"# {notes[key]}")
        if key in ("inputs", "axes"):
            lines += [f"{key}:", *(f"  {_flow({each: one})[1:-1]}" for each, one in value.items())]
        else:
            lines.append(_flow({key: value})[1:-1])
    return "\n".join(lines) + "\n"


def _flow(value: Any) -> str:
    """The value as YAML on one line."""
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000)
    return text.rstrip()


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


def _axis(example: int) -> dict[str, Any]:
    """The example, a smaller and a larger size to check: 1 and odd ones find most of what is fixed by mistake."""
    smaller = 1 if example < 8 else example // 2
    return {"example": example, "check": [size for size in (smaller, example + example // 2 + 1) if size != example]}


def _arguments(words: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"--arg {word!r} cannot be read. Next step: write it as width=8")
        try:
            found[name] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise UsageError(f"--arg {word!r}: {value!r} is no value that YAML can read") from error
    return found
