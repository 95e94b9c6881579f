"""Scripted modules inside an ordinary one, as torch.export can call them.

Arrives: a module. Leaves: a context in which methods of its scripted parts are those of TorchScript alone. torch (2.13)
keeps with each the Python method that it was made of, and calls that one, with the module given twice, where it is
called while torch.export traces. TorchScript takes sizes for numbers, so this is no way to free axes, and what
asks for these is traced. May go when torch does not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


@contextlib.contextmanager
def script_methods(module: torch.nn.Module) -> Iterator[None]:
    """While open, methods of scripted parts of a module know no Python method."""
    parts = [part for part in module.modules() if isinstance(part, torch.jit.ScriptModule)]
    kept = [{name: one for name, one in vars(part).items() if isinstance(one, torch._C.ScriptMethod)} for part in parts]
    for part, methods in zip(parts, kept, strict=True):
        held: Any = part._c
        vars(part).update({name: held._get_method(one.name) for name, one in methods.items()})
    try:
        yield
    finally:
        for part, methods in zip(parts, kept, strict=True):
            vars(part).update(methods)
