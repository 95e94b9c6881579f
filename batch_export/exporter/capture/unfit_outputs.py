"""What a model returns and a file cannot give: text, dtypes, sets, objects, or nothing at all.

Arrives: what forward returned, or the program made of it. Leaves: an error that names it and where it stands, in place
of torch's, or of a file that no runtime loads.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.export.graph_signature import ConstantArgument, OutputKind
from torch.utils import _pytree as pytree

from batch_export.calling.tree_paths import leaves_with_paths
from batch_export.exporter.capture import either_kinds
from batch_export.exporter.capture.free_sequences import FreeSequence

_GIVEN = (
    torch.Tensor,
    np.ndarray,
    np.generic,
    bool,
    int,
    float,
    type(None),
    torch.SymInt,
    torch.SymFloat,
    torch.SymBool,
)

_SHOWN = (str, bytes, complex, torch.dtype, torch.device)


class UnfitOutputError(ValueError):
    """What forward returns is nothing that a file gives.

    Attributes:
        source: `file:line` of forward, empty when it is not known.
    """

    def __init__(self, problem: str, source: str = "") -> None:
        super().__init__(problem)
        self.source = source


@contextlib.contextmanager
def outputs_refused(module: torch.nn.Module) -> Iterator[None]:
    """While this is open, a call of the module refuses what it returns where no file can give that."""

    def returned(_module: torch.nn.Module, _given: object, outputs: object) -> Any:
        if torch.compiler.is_dynamo_compiling():  # there the hook would be captured, not run
            return None
        _refuse(module, outputs)
        return either_kinds.in_outputs(outputs)

    hook = module.register_forward_hook(returned)
    try:
        yield
    finally:
        hook.remove()


def _refuse(module: torch.nn.Module, outputs: Any) -> None:
    for leaf in pytree.tree_leaves(outputs):
        if isinstance(leaf, _GIVEN) or pytree.is_constant_class(type(leaf)):
            continue
        if isinstance(leaf, FreeSequence):
            raise UnfitOutputError(
                f"forward returns a {leaf.kind.__name__}{_place_of(leaf, outputs)} with one element for each place of "
                "a free axis, and the number of a file's outputs is fixed",
                _line_of_forward(module),
            )
        shown = f" ({repr(leaf)[:60]})" if isinstance(leaf, _SHOWN) else ""
        raise UnfitOutputError(
            f"forward returns a value of the type {type(leaf).__name__}{shown}{_place_of(leaf, outputs)}, and a file "
            "gives tensors and numbers",
            _line_of_forward(module),
        )


def _place_of(leaf: object, outputs: Any) -> str:
    for path, one in leaves_with_paths(outputs):
        if one is leaf and path:
            return f" at {pytree.keystr(path)}"
    return ""


def _line_of_forward(module: torch.nn.Module) -> str:
    code = getattr(inspect.unwrap(module.forward), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""


def refuse_nothing(program: torch.export.ExportedProgram, module: torch.nn.Module) -> None:
    """Refuses a program that gives nothing, neither an output nor what forward changes.

    Raises:
        UnfitOutputError: if it gives nothing.
    """
    given = [
        spec
        for spec in program.graph_signature.output_specs
        if spec.kind != OutputKind.USER_OUTPUT
        or not isinstance(spec.arg, ConstantArgument)
        or spec.arg.value is not None
    ]
    writes = any(getattr(getattr(node.target, "_schema", None), "is_mutable", False) for node in program.graph.nodes)
    if not given and not writes:
        problem = "forward returns no tensor and no number at the example inputs, and a file without outputs is none"
        raise UnfitOutputError(problem, _line_of_forward(module))
