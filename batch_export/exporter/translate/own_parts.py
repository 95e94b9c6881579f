"""Which operators of a program a caller's translations are asked for in parts: those that torch takes apart itself.

Arrives: an operator of the captured program that has no translation of the caller's. Leaves: whether torch, on the way
to `torch.onnx.export`, makes it of others one of which the caller has a translation for: `reshape` of `view`, `to` of
`_to_copy`. Without such translations nothing is asked.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from batch_export.errors import OnnxExporterError
from batch_export.exporter.translate import decompose
from batch_export.exporter.translate.registry import OnnxRegistry, qualified_name


@functools.cache
def torch_takes_apart(target: object) -> bool:
    """Whether no program that torch hands to its translations has this operator.

    It decomposes what torchlib has no function for, and always the composite operators that may give a view.
    """
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return False
    from onnxscript.function_libs.torch_lib import registration  # lazy: a second and more to import

    is_known = qualified_name(target) in registration.default_registry
    if target.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
        return not is_known or not _is_preserved(target)
    return not is_known and decompose.decomposition_of(target) is not None


def _is_preserved(target: torch._ops.OpOverload) -> bool:
    utils = importlib.import_module("torch._export.utils")
    check: Any = getattr(utils, "_is_preservable_cia_op", None)
    return check is None or bool(check(target))


def reaches_own(
    registry: OnnxRegistry,
    target: object,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    fake_mode: FakeTensorMode,
) -> bool:
    """Whether an operator with these arguments is made of one that the caller has a translation for.

    Args:
        registry: the translations.
        target: the operator.
        args, kwargs: its arguments, tensors being fake.
        fake_mode: theirs.
    """
    if registry.is_own(target) or not torch_takes_apart(target):
        return False
    found: list[object] = []

    def is_whole(func: object, given: Sequence[object], options: Mapping[str, object]) -> bool:
        del given, options
        return registry.is_own(func) or not torch_takes_apart(func)

    def note(func: object, given: Sequence[object], options: Mapping[str, object], output: object) -> None:
        del given, options, output
        if registry.is_own(func):
            found.append(func)

    try:
        decompose.run_decomposition(
            target,
            args,
            kwargs,
            fake_mode=fake_mode,
            is_translatable=is_whole,
            translate=note,
            rebind=lambda changed, content: None,
        )
    except OnnxExporterError:  # it is translated as a whole
        return False
    return bool(found)
