"""Functions of a model that are written anew at lines at which sizes decide.

Arrives: lines of a model (`file:line`), which lines of a file could be written anew, and what writes a function.
Leaves: the functions with such lines, each with its new code.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import Any

import torch

from batch_export.exporter.capture import function_sources
from batch_export.exporter.capture.kinds import reached

LinesOf = Callable[[str], frozenset[int]]
"""The lines of a file that could be written anew."""
Write = Callable[[ast.FunctionDef, set[int]], ast.FunctionDef | None]
"""A function written anew at some lines; None where there is nothing to write."""


def any_of(places: Iterable[str], lines_of: LinesOf) -> bool:
    """Returns whether some of several places could be written anew."""
    return any(line in lines_of(file) for file, line in _parted(places))


def written_anew(
    module: torch.nn.Module, places: Iterable[str], lines_of: LinesOf, write: Write
) -> list[tuple[Any, CodeType]]:
    """The functions of a model that have such lines, each with its new code.

    Args:
        module: the model.
        places: the lines.
        lines_of: which of a file could be written anew.
        write: what writes a function.
    """
    lines = _parted(places)
    made = ((one, _written(one.__code__, lines, lines_of, write)) for one in reached(module))
    return [(one, code) for one, code in made if code is not None]


def _parted(places: Iterable[str]) -> set[tuple[str, int]]:
    return {(file, int(line)) for file, _, line in (place.rpartition(":") for place in places) if line.isdecimal()}


def _written(code: CodeType, lines: set[tuple[str, int]], lines_of: LinesOf, write: Write) -> CodeType | None:
    own = {line for file, line in lines if file == code.co_filename}
    if not own or not own.intersection(lines_of(code.co_filename)):
        return None
    if not own.intersection(_lines_of(code)):
        return None
    function = function_sources.tree_of(code) if function_sources.is_current(code) else None
    changed = None if function is None else write(function, own)
    return None if changed is None else function_sources.compiled(changed, code)


def _lines_of(code: CodeType) -> Iterator[int]:
    """The lines of a code, and of the functions that it defines."""
    for one in (code, *function_sources.codes_within(code)):
        yield from (line for *_, line in one.co_lines() if line is not None)
