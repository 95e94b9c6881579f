"""Between what a torch model takes and gives (nested, with None and numbers) and the flat tensors of an ONNX model.

Arrives: nested inputs or outputs, and the exported program that says which of them are tensors of the ONNX model.
Leaves: tensors in order. No model is run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.utils import _pytree as pytree

from batch_export.exporter.program import nested_inputs

TORCH_STRATEGIES = {
    "ExportedProgram": "ExportedProgram",
    "torch.export(strict=False)": "TorchExportNonStrictStrategy",
    "torch.export(strict=True)": "TorchExportStrictStrategy",
}
"""Our names of the ways of capture -> those of torch's exporter, for its public test helper."""


def flat_inputs(
    program: torch.export.ExportedProgram | None,
    names: Sequence[str],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    form: nested_inputs.CallForm | None = None,
) -> list[torch.Tensor]:
    """The tensors among nested inputs, in the order of the ONNX inputs `names`.

    Args:
        program: what the model was made from, if that is an exported program.
        names: of the ONNX inputs.
        args, kwargs: the inputs of a call.
        form: how the model was called at its export, where no program says it.

    Raises:
        ValueError: for an input, a key or a field that is missing or too many, if the number of tensors differs from
            that of the ONNX inputs, or a number is not the one fixed at capture.
    """
    form = form if program is None else nested_inputs.form_of_program(program)
    leaves = pytree.tree_leaves((args, dict(kwargs))) if form is None else form.leaves(args, kwargs)
    chosen = _user_leaves(program, leaves)
    if len(chosen) != len(names):
        chosen = [leaf for leaf in leaves if leaf is not None]
    if len(chosen) != len(names):
        chosen = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if len(chosen) != len(names):
        raise ValueError(
            f"the model has {len(names)} inputs ({', '.join(names)}), and {len(chosen)} tensors were given"
        )
    return [onnx_tensor(leaf) for leaf in chosen]


def _user_leaves(program: torch.export.ExportedProgram | None, leaves: Sequence[object]) -> list[object]:
    """The leaves that the program reads when it runs; values fixed at capture are left out."""
    if program is None:
        return []
    specs = [spec for spec in program.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT]
    if len(specs) != len(leaves):
        return []
    pairs = list(zip(specs, leaves, strict=True))
    for spec, leaf in pairs:
        if isinstance(spec.arg, ConstantArgument):
            _require_as_captured(spec.arg, leaf)
        elif leaf is None:
            raise ValueError(f"{spec.arg.name} is an input of the model, and None was given")
    return [leaf for spec, leaf in pairs if not isinstance(spec.arg, ConstantArgument)]


def _require_as_captured(argument: ConstantArgument, leaf: object) -> None:
    """Raises ValueError where a value that is fixed in the model is given another value now."""
    if isinstance(leaf, torch.Tensor) or leaf != argument.value:
        now = "a tensor" if isinstance(leaf, torch.Tensor) else repr(leaf)
        raise ValueError(
            f"{argument.name} is fixed in the model as {argument.value!r}, and {now} was given. Next step: export with "
            "that value, or pass a tensor when exporting, which becomes an input"
        )


def flat_outputs(outputs: object) -> list[torch.Tensor]:
    """The tensors among nested outputs, in the order of the ONNX outputs; None is left out."""
    return [onnx_tensor(leaf) for leaf in pytree.tree_leaves(outputs) if leaf is not None]


def onnx_tensor(leaf: object) -> torch.Tensor:
    """A tensor as ONNX has it: numbers become tensors, complex tensors `float[..., 2]`."""
    tensor = leaf if isinstance(leaf, torch.Tensor) else torch.as_tensor(leaf)
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
