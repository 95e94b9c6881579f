"""Functions of `os` that tell of their calls, and are else what they were.

A function of C's arrives, an object in its place leaves. It is no function of Python's, which would take the object of
a class that holds it for its first argument, and it is pickled by its name, as the function was.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any


class ToldFunction:
    """A function that is called by way of another one.

    Args:
        own: the function.
        call: is called in its place, with the same arguments.
    """

    def __init__(self, own: Callable[..., Any], call: Callable[..., Any]) -> None:
        functools.update_wrapper(self, own)
        self._call = call

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Calls the other one."""
        return self._call(*args, **named)

    def __reduce__(self) -> tuple[Callable[[str], Any], tuple[str]]:
        return _of_that_name, (self.__name__,)  # type: ignore[attr-defined]  # the function's

    def __repr__(self) -> str:
        return f"<built-in function {self.__name__}>"  # type: ignore[attr-defined]  # as the function's


def _of_that_name(name: str) -> Any:
    return getattr(os, name)
