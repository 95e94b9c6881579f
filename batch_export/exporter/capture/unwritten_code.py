"""Graphs without Python code while torch makes a program: each of its passes would write code that nobody runs.

Nothing arrives. Leaves: a context within which torch's tracer makes modules that write their code when they are first
run or asked for it; and a program, in which what is left of these has its code.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import _lazy_graph_module


@contextlib.contextmanager
def code_unwritten() -> Iterator[None]:
    """While open, torch's tracer makes such modules.

    NOTE: a private context of torch, which its compiler uses; without it code is written each time.
    """
    unwritten: Any = getattr(_lazy_graph_module, "_use_lazy_graph_module", None)
    with contextlib.nullcontext() if unwritten is None else unwritten(True):
        yield


def write_code(program: torch.export.ExportedProgram) -> None:
    """Has the branches and bodies in a program write their code; torch makes the program itself anew, with code."""
    kind: Any = getattr(_lazy_graph_module, "_LazyGraphModule", ())
    for module in program.graph_module.modules():
        if isinstance(module, kind):
            module.real_recompile()
