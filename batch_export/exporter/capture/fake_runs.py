"""Runs of a model without numbers: whether it takes some inputs, and what a run with numbers would cost.

Arrives: a model and inputs, perhaps far larger than the example. Leaves: why it does not take them, the elements of the
largest tensor on the way, and the multiplications of its products. Nothing is computed but shapes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from batch_export.exporter.capture.dropped_caches import caches_dropped
from batch_export.exporter.capture.endless import EndlessError
from batch_export.exporter.capture.grad_modes import recording
from batch_export.exporter.capture.kept_state import state_kept
from batch_export.exporter.capture.quiet import quiet
from batch_export.exporter.capture.rewritten_code import as_written
from batch_export.exporter.capture.trial import is_fake, uncompiled

_UNDECIDED = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
    GuardOnDataDependentSymNode,
    NotImplementedError,
)
"""What a run without numbers cannot tell, and a run with them can."""
_ELEMENTS = 2**26
"""The largest tensor that a run may make without being called too large."""
_CALLS = 20_000
"""The calls of torch's functions after which nothing is known of the rest."""
_OPERATIONS = 10**11
"""The floating point operations that a run may take, half a minute of one core or less."""


@dataclass(frozen=True, slots=True)
class FakeRun:
    """What a run without numbers says.

    Attributes:
        refused: why the model does not take the inputs; empty where it takes them.
        elements: those of the largest tensor.
        operations: floating point operations of products and convolutions.
        is_long: whether it did not come to its end for the number of its calls.
    """

    refused: str
    elements: int = 0
    operations: int = 0
    is_long: bool = False

    @property
    def is_too_large(self) -> bool:
        """Whether nobody should run it with numbers beside other work."""
        return self.is_long or self.elements > _ELEMENTS or self.operations > _OPERATIONS


class _AnyIndex(TorchFunctionMode):
    """Within, one integer that the data say stands for any index: each gives the same shape.

    A loop of Python's over a size that nobody could make ends after some calls.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.calls += 1
        name = getattr(func, "__name__", "")
        if name in ("unbind", "__iter__") and args and isinstance(args[0], torch.Tensor):
            self.calls += max((size for size in args[0].shape if isinstance(size, int)), default=0)
        if self.calls > _CALLS:
            raise EndlessError(f"the model's own code goes on after {_CALLS} calls of torch's functions")
        if name in ("__getitem__", "__setitem__") and len(args) > 1:
            of, index, *rest = args
            index = tuple(map(_any_index, index)) if isinstance(index, tuple) else _any_index(index)
            args = (of, index, *rest)
        return func(*args, **(kwargs or {}))


def _any_index(one: object) -> object:
    if not isinstance(one, FakeTensor) or one.dim() or one.is_floating_point():
        return one
    return one if one.dtype in (torch.bool, torch.uint8) else 0


class _Costs(TorchDispatchMode):
    """Counts operations by torch's own formulas, and looks for the largest tensor."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.elements = 0
        self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        counts = [one.numel() for one in pytree.tree_leaves(result) if isinstance(one, torch.Tensor)]
        self.elements = max([self.elements, *(one for one in counts if isinstance(one, int))])
        formula = flop_registry.get(getattr(func, "_overloadpacket", None))
        operations = formula(*args, **(kwargs or {}), out_val=result) if formula is not None else 0
        self.operations += operations if isinstance(operations, int) else 0
        return result


def refusal(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], mode: FakeTensorMode | None = None
) -> str:
    """Why the model does not take some inputs, found without computing numbers; empty where it takes them.

    Empty, too, where that took too many calls. What depends on numbers, such as an index beyond a table, is not seen.

    Args:
        module: the model.
        args: positional inputs.
        kwargs: keyword inputs.
        mode: that of inputs which are fake, beside weights that are not.
    """
    return refused_run(module, args, kwargs, mode).refused


def refused_run(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], mode: FakeTensorMode | None = None
) -> FakeRun:
    """The same, and whether it took too many calls; costs are not counted."""
    try:
        return FakeRun(_run(module, args, kwargs, mode, contextlib.nullcontext()))
    except EndlessError:
        return FakeRun("", is_long=True)


def fake_run(module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> FakeRun:
    """What a run without numbers says of inputs that may be large; what ends on the way is counted as far as it goes.

    Args:
        module: the model.
        args: positional inputs.
        kwargs: keyword inputs.
    """
    costs = _Costs()
    try:
        refused = _run(module, args, kwargs, None, costs)
    except EndlessError:
        return FakeRun("", costs.elements, costs.operations, is_long=True)
    return FakeRun(refused, costs.elements, costs.operations)


def _run(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    mode: FakeTensorMode | None,
    beside: contextlib.AbstractContextManager[object],
) -> str:
    try:
        with as_written(), state_kept(module), caches_dropped(), recording(module), quiet(), uncompiled():
            given, keywords = args, dict(kwargs)
            if mode is None and is_fake(module, args, kwargs):
                module(*given, **keywords)
                return ""
            if mode is None:
                mode = FakeTensorMode(allow_non_fake_inputs=True)
                given, keywords = pytree.tree_map_only(torch.Tensor, mode.from_tensor, (given, keywords))
            with mode, beside, _AnyIndex():
                module(*given, **keywords)
    except EndlessError:
        raise
    except _UNDECIDED:
        return ""
    except Exception as error:
        lines = [line for line in str(error).strip().splitlines() if line.strip()]
        return f"{type(error).__name__}: {lines[0] if lines else ''}"
    return ""
