"""torch.func's transforms (`vmap`, `grad`, `jvp`, ...) in captured programs, in terms of plain operators.

Arrives: a captured program, or what is needed to capture one. Leaves: a program without calls of torch.func's own
functions, which stand for levels of nesting and have no meaning outside torch. Tracing the program once more resolves
most of them and leaves all other operators as they are; derivatives are resolved by tracing the model below torch's
dispatcher, which also breaks composite operators into their parts.
"""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Iterator

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export._trace import _export
from torch.export.graph_signature import InputKind

from batch_export.exporter.capture import effect_tokens

_FUNCTORCH = "torch._functorch"
_SOURCES = os.path.join(os.path.dirname(torch.__file__), "_functorch")
_ENTRIES = ("apis.py", "eager_transforms.py", "vmap.py", "predispatch.py", "functional_call.py")
"""Sources in which calls of transforms are found on the stack."""


def has_transforms(program: torch.export.ExportedProgram) -> bool:
    """Whether a program calls functions of a transform."""
    modules = [one for one in program.graph_module.modules() if isinstance(one, torch.fx.GraphModule)]
    return any(
        node.op == "call_function" and str(getattr(node.target, "__module__", "")).startswith(_FUNCTORCH)
        for module in modules
        for node in module.graph.nodes
    )


def holds_example(program: torch.export.ExportedProgram) -> bool:
    """Whether a constant was made of the example inputs, and is no constant at all.

    Its sizes are free, or beside transforms it has no content.
    """
    lifted = [one for name, one in program.constants.items() if name not in program.state_dict]
    if any(isinstance(one, FakeTensor) for one in lifted) and has_transforms(program):
        return True
    made = {spec.arg.name for spec in program.graph_signature.input_specs if spec.kind is not InputKind.USER_INPUT}
    return any(node.name in made for node in _free_placeholders(program))


def failed_in_transform(error: BaseException) -> bool:
    """Whether a capture failed while a transform was traced, or at a tensor of one that outlived it.

    A weight that is read within a transform becomes such a tensor, which torch cannot make a constant of where it is a
    view (the transposed weight of a Linear).
    """
    for frame, _ in traceback.walk_tb(error.__traceback__):
        folder, name = os.path.split(frame.f_code.co_filename)
        if folder == _SOURCES and name in _ENTRIES:
            return True
        if any(isinstance(one, torch.Tensor) and is_of_transform(one) for one in frame.f_locals.values()):
            return True
    return False


def is_of_transform(tensor: torch.Tensor) -> bool:
    """Whether a tensor belongs to a level of a transform, outside of which it has no meaning."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def resolved(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram | None:
    """The program without transforms; None where tracing it once more does not resolve them, or fixes an axis."""
    try:
        plain = effect_tokens.decomposed(program, {})
    except Exception:  # a derivative: it needs the model
        return None
    return None if has_transforms(plain) or holds_example(plain) or _free(plain) < _free(program) else plain


def below_dispatcher(
    module: torch.nn.Module, args: tuple[object, ...], kwargs: dict[str, object], form: object
) -> torch.export.ExportedProgram:
    """Captures a model below torch's dispatcher, where transforms have become plain operators."""
    program: torch.export.ExportedProgram = _export(
        module, args, kwargs or None, form, strict=False, pre_dispatch=False
    )
    return program


def _free(program: torch.export.ExportedProgram) -> int:
    """How many sizes of the inputs are free."""
    return len(list(_free_placeholders(program)))


def _free_placeholders(program: torch.export.ExportedProgram) -> Iterator[torch.fx.Node]:
    """The placeholder of each free size."""
    for node in program.graph.nodes:
        value = node.meta.get("val") if node.op == "placeholder" else None
        sizes: list[object] = list(value.shape) if isinstance(value, torch.Tensor) else []
        yield from (node for size in sizes if isinstance(size, torch.SymInt) and not size.node.expr.is_number)


@contextlib.contextmanager
def own_levels() -> Iterator[None]:
    """Closes the levels of transforms that a failed capture leaves open, in which nothing else would run right."""
    functorch = torch._C._functorch
    depth = functorch.get_dynamic_layer_stack_depth()
    try:
        yield
    finally:
        if functorch.get_dynamic_layer_stack_depth() > depth:
            functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)
