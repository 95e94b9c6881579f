"""What a model's own error says it lacks: arguments that it was not given, and settings that it asks for.

An exception arrives, names and values leave. Both are tried and not believed: eager has the last word.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Collection
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
