"""What a config names is imported and called here, and so is the model that comes of it, and nothing else is done: what
such a call asks for (a variable, a file, a version) is asked by the user, as if a line of his own code had called it.

Names and functions arrive, modules and what functions give leave.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any


def imported(name: str) -> ModuleType:
    """The module of that name.

    Raises:
        Exception: whatever its import raises.
    """
    return importlib.import_module(name)


def called(function: Callable[..., Any], /, *positional: Any, **named: Any) -> Any:
    """What the function gives.

    Raises:
        Exception: whatever it raises.
    """
    return function(*positional, **named)
