"""What a model's own error says it lacks: arguments that it was not given, settings, another shape of an input.

An exception arrives, names and values leave. Both are tried and not believed: eager has the last word.
"""

from __future__ import annotations

import linecache
import math
import re
from collections.abc import Collection, Mapping, Sequence
from types import TracebackType

_SETTING = re.compile(r"`(\w+)\s*=\s*(True|False)`")
_SHORT = 3
"""Names up to this length are words of any sentence."""


def settings_said(text: str) -> dict[str, bool]:
    """Returns the switches that a message quotes, such as `is_decoder=True`."""
    return {name: value == "True" for name, value in _SETTING.findall(text)}


def arguments_missed(error: BaseException, parameters: Collection[str]) -> list[str]:
    """Returns the parameters that an error names, or that are None in the statement that stumbled over None.

    Args:
        error: what calling the model raised.
        parameters: names of the parameters of its forward.
    """
    words = set(re.findall(r"\w+", str(error)))
    named = [name for name in parameters if len(name) > _SHORT and name in words]
    if named or not {"NoneType", "None", "bool"} & words:
        return named
    for frame, found in reversed([(one.tb_frame, _statement(one)) for one in _steps(error.__traceback__)]):
        unset = [name for name in parameters if name in found and frame.f_locals.get(name, found) is None]
        if unset:
            return unset
    return []


def _steps(first: TracebackType | None) -> list[TracebackType]:
    steps = []
    while first is not None:
        steps.append(first)
        first = first.tb_next
    return steps


def _statement(step: TracebackType) -> set[str]:
    """The words of the expression that a step of a traceback is at."""
    positions = list(step.tb_frame.f_code.co_positions())[step.tb_lasti // 2]
    first, last = positions[0] or step.tb_lineno, positions[1] or step.tb_lineno
    name = step.tb_frame.f_code.co_filename
    return set(re.findall(r"\w+", "".join(linecache.getline(name, line) for line in range(first, last + 1))))


_WIDTHS = (
    re.compile(r"expected input with shape \[\*, (?P<wide>\d+)\], but got input of size\[(?P<given>[\d, ]+)\]"),
    re.compile(r"mat1 and mat2 shapes cannot be multiplied \((?P<rows>\d+)x(?P<last>\d+) and (?P<wide>\d+)x\d+\)"),
)
"""What a normalisation and a linear layer say of an input with another last axis than theirs."""


def width_said(text: str, shapes: Mapping[str, Sequence[int]]) -> tuple[str, int] | None:
    """Returns the parameter whose last axis an error wants of another length, and that length.

    Args:
        text: the error's message.
        shapes: sizes of the floating point inputs that were given.
    """
    for pattern in _WIDTHS:
        said = pattern.search(text)
        if said is None:
            continue
        found = said.groupdict()
        for name, shape in shapes.items():
            if "given" in found:
                is_meant = list(shape) == [int(size) for size in found["given"].split(",")]
            else:
                is_meant = (math.prod(shape[:-1]), shape[-1]) == (int(found["rows"]), int(found["last"]))
            if is_meant:
                return name, int(found["wide"])
    return None


_LACKING = re.compile(r"missing \d+ required (?:positional|keyword-only) arguments?: (.+)$")


def arguments_lacking(text: str) -> list[str]:
    """Returns the arguments that a call says were required and not given."""
    said = _LACKING.search(text)
    return re.findall(r"'(\w+)'", said[1]) if said else []


_SIDES = re.compile(r"(?:size|shape)[^.]*? (?:should|must) be \(?(\d+) ?[x*,] ?(\d+)")


def sides_said(text: str) -> tuple[int, int] | None:
    """Returns the height and the width that an error says an image has to have."""
    said = _SIDES.search(text)
    return (int(said[1]), int(said[2])) if said else None


_SMALL = re.compile(r"Output size is too small|Kernel size can't be greater than actual input size|input.* too small")


def is_too_small(text: str) -> bool:
    """Whether an error says that an image or a signal is smaller than a layer needs."""
    return _SMALL.search(text) is not None


_IMAGE = re.compile(r"[Ii]nput image size \((\d+)\*(\d+)\) doesn't match model \((\d+)\*(\d+)\)")


def image_said(text: str) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Returns height and width of what an error calls the image, and those that the model wants."""
    said = _IMAGE.search(text)
    if said is None:
        return None
    given_height, given_width, height, width = (int(one) for one in said.groups())
    return (given_height, given_width), (height, width)


_CHANNELS = re.compile(
    r"expected input\[(?P<given>[\d, ]+)\] to have (?P<wide>\d+) channels, but got \d+ channels instead"
)


def channels_said(text: str, shapes: Mapping[str, Sequence[int]]) -> tuple[str, int] | None:
    """Returns the parameter that a convolution wants with another number of channels, and that number.

    Args:
        text: the error's message.
        shapes: sizes of the floating point inputs that were given.
    """
    said = _CHANNELS.search(text)
    if said is None:
        return None
    given = [int(size) for size in said["given"].split(",")]
    return next(((name, int(said["wide"])) for name, shape in shapes.items() if list(shape) == given), None)
