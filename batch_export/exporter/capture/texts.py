"""Text that a model's code makes of sizes and of data: `str(x.shape[0])`, an f-string, `repr(x)`.

Arrives: nothing; a context is opened round a capture. Leaves: the sizes that became text, which is that of the example
as it would be in eager (torch's own is the name of a symbol), and the line where data became text. Most of it is
printed, logged or raised; whether it decides anything is found out where programs are tried. No guard tells of it.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import sympy
import torch

from batch_export.exporter.capture.guard_sources import is_torchs, is_users

_NUMBERS: tuple[Any, ...] = (torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclass(slots=True)
class Texts:
    """What became text.

    Attributes:
        sizes: what holds of sizes at the example (`Eq(s77, 3)`) -> the line (`file:line`) where they became text.
        data: the first line where data did; empty where none did.
    """

    sizes: dict[sympy.Basic, str] = field(default_factory=dict)
    data: str = ""


def _line() -> str:
    """The user's line that makes text, itself or by the standard library; empty where torch does, for itself."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if is_users(file):
            return f"{file}:{frame.f_lineno}"
        if is_torchs(file):
            return ""
        frame = frame.f_back
    return ""


def _held(number: Any) -> tuple[sympy.Basic, object] | None:
    """What holds of a symbolic number at the example, and the number; None where the data decide what it is."""
    node = number.node
    hint = node.hint if node.has_hint() else None
    if hint is None or not isinstance(node.expr, sympy.Basic):
        return None
    if isinstance(hint, bool):
        return (node.expr if hint else sympy.Not(node.expr)), hint
    return sympy.Eq(node.expr, sympy.sympify(hint), evaluate=False), hint


def _known(tensor: torch.Tensor) -> torch.Tensor | None:
    """A tensor of torch's that is a constant of the model's code, with its numbers; None where it is data."""
    constant = getattr(tensor, "constant", None)
    return constant if isinstance(constant, torch.Tensor) else None


@contextlib.contextmanager
def texts_noted() -> Iterator[Texts]:
    """While open, text that the model's code makes of sizes is that of the example, and noted.

    NOTE: methods of torch's classes are replaced, and put back; torch's own text is what it was.
    """
    made = Texts()

    def of_number(number: Any, line: str) -> object:
        held = _held(number)
        if held is None:
            made.data = made.data or line
            return None
        if held[0].free_symbols:
            made.sizes.setdefault(held[0], line)
        return held[1]

    def shown(original: Callable[..., str]) -> Callable[..., str]:
        def noting(self: Any) -> str:
            line = _line()
            number = of_number(self, line) if line else None
            return original(self) if number is None else repr(number)

        return noting

    def formatted(self: Any, spec: str) -> str:
        line = _line()
        number = of_number(self, line) if line else None
        return format(str(self) if number is None else number, spec)

    def of_tensor(original: Callable[..., str]) -> Callable[..., str]:
        @functools.wraps(original)
        def noting(self: torch.Tensor, *given: Any, **options: Any) -> str:
            known = _known(self)
            if known is not None and _line():
                return original(known, *given, **options)
            made.data = made.data or _line()
            return original(self, *given, **options)

        return noting

    tensors = [(torch.Tensor, name) for name in ("__repr__", "__format__")]
    before = [(kind, "__repr__", kind.__repr__) for kind in _NUMBERS]
    before += [(kind, name, getattr(kind, name)) for kind, name in tensors]
    for kind in _NUMBERS:
        kind.__repr__ = shown(kind.__repr__)
        kind.__format__ = formatted
    for kind, name in tensors:
        setattr(kind, name, of_tensor(getattr(kind, name)))
    try:
        yield made
    finally:
        for kind, name, method in before:
            setattr(kind, name, method)
        for kind in _NUMBERS:
            del kind.__format__
