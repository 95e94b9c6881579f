"""`torch.onnx.export` with its older TorchScript path, as a plug-in exporter.

A module and keyword arguments arrive; an ONNX file is written to `path`. TorchScript traces positional tensors and
takes `dynamic_axes`, so the module is wrapped in one that takes its tensors in order, and the tree of dynamic shapes
is turned into axes by input name.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Unpack

import torch
from torch.onnx import export as found_export  # held from now on: ours may be put in its place later
from torch.utils import _pytree as pytree

from batch_export.calling.users_line import users_level
from batch_export.plugin import Wanted, options, passing_on

_DEPRECATED = (
    "export(): dynamo=False is deprecated; use dynamo=True: TorchScript gets no further development "
    "(torch.onnx.export says: You are using the legacy TorchScript-based ONNX export.)"
)
"""Said where torch's own door, which says so itself, is not the one that was found; its words are for filters."""


class _Flat(torch.nn.Module):
    """Takes the tensors of the arguments in order, rebuilds the arguments round them and calls the module."""

    def __init__(self, module: torch.nn.Module, arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
        super().__init__()
        self.module = module
        leaves, self._tree = pytree.tree_flatten(arguments)
        self.tensors = tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
        self._leaves = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self._places = [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Calls the module."""
        leaves = list(self._leaves)
        for place, tensor in zip(self._places, tensors, strict=True):
            leaves[place] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self._tree)
        outputs = pytree.tree_leaves(self.module(*args, **kwargs))
        return tuple(output for output in outputs if output is not None)


@passing_on(torch.onnx.export)
def export(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], **wanted: Unpack[Wanted]) -> None:
    """Writes the file; what is given besides goes to `torch.onnx.export` as it is."""
    with warnings.catch_warnings():
        # The path is deprecated and tracing warns at every Python number; neither is news to whoever chose it.
        warnings.simplefilter("ignore")
        _write(module, args, kwargs, wanted)


def export_once(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], **wanted: Unpack[Wanted]
) -> None:
    """Like `export`, and hands on what torch tells a caller of this path: that it is deprecated, and what to read."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        _write(module, args, kwargs, wanted)
    said = [one.message for one in told if one.filename == __file__ and issubclass(one.category, DeprecationWarning)]
    for message in said or [_DEPRECATED]:
        warnings.warn(str(message), DeprecationWarning, stacklevel=users_level())


def _write(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], wanted: Wanted) -> None:
    if isinstance(module, torch.jit.ScriptModule):  # it cannot be called inside a trace
        flat: Any = module
        given = _by_position(module, args, kwargs)
        tensors = tuple(leaf for leaf in pytree.tree_leaves(given) if isinstance(leaf, torch.Tensor))
    else:
        flat = _Flat(module, (args, kwargs)).train(module.training)
        given = tensors = flat.tensors
    names = list(wanted["input_names"] or ()) or [f"input_{index}" for index in range(len(tensors))]
    is_torchs_own = found_export.__module__ == torch.onnx.__name__  # else ours, say, was there before
    door: dict[str, Any] = {"dynamo": False} if is_torchs_own else {}
    (found_export if is_torchs_own else torch.onnx.utils.export)(
        flat,
        given,
        str(wanted["path"]),
        kwargs={},
        opset_version=wanted["opset_version"],
        dynamic_axes=dynamic_axes(wanted["dynamic_shapes"], names),
        input_names=names,
        output_names=wanted["output_names"],
        verbose=False,
        **door,
        **options(wanted),
    )


def _by_position(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The inputs of a scripted module in the order of its forward, up to the last one that is given."""
    formals = list(module.forward.schema.arguments)[1 + len(args) :]
    while formals and formals[-1].name not in kwargs:
        formals.pop()
    return (*args, *(kwargs.get(formal.name, formal.default_value) for formal in formals))


def dynamic_axes(dynamic_shapes: dict[str, Any] | None, input_names: Sequence[str]) -> dict[str, dict[int, str]]:
    """Turns a tree with `{dimension: axis}` at the tensors (None at constants) into axes by input name.

    A dimension whose axis has no name (`Dim.AUTO`) is named after its input and its place.
    """
    if dynamic_shapes is None:
        return {}
    leaves = pytree.tree_leaves(dynamic_shapes, is_leaf=_is_dimensions)
    by_input = zip(input_names, (leaf for leaf in leaves if leaf is not None), strict=True)
    return {
        name: {dim: axis if isinstance(axis, str) else f"{name}_dim{dim}" for dim, axis in leaf.items()}
        for name, leaf in by_input
        if leaf
    }


def _is_dimensions(node: Any) -> bool:
    return isinstance(node, dict) and all(isinstance(key, int) for key in node)
