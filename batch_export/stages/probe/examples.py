"""Inputs that came with a model, as specs: tensors of an example, or what an exported program was captured with.

Trees of tensors arrive, leaves with their shapes and with ranges that hold their values leave. Values are drawn anew by
whoever runs the model.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from batch_export.errors import ModelError
from batch_export.nouns import counted
from batch_export.spec import InputSpec
from batch_export.stages.probe.trial import schema_of

_NAMES = ("example_inputs", "example_input_array", "dummy_inputs")
"""Attributes under which modules keep inputs: Lightning's and transformers' among them."""


def own_example(module: torch.nn.Module) -> Any:
    """Inputs that the module has with it; None where it has none."""
    if isinstance(module, torch.jit.ScriptModule):
        return None
    for name in _NAMES:
        try:
            found = getattr(module, name, None)
        except Exception:  # a property of somebody else's
            continue
        if isinstance(found, torch.Tensor) or (isinstance(found, tuple | list | Mapping) and len(found)):
            return found
    return None


def required(module: torch.nn.Module) -> list[str]:
    """The parameters of forward that have no default, in order."""
    if isinstance(module, torch.jit.ScriptModule):
        return [one.name for one in schema_of(module) if not one.has_default_value()]
    parameters = inspect.signature(module.forward).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [one.name for one in parameters if one.kind in kinds and one.default is one.empty]


def accepted(module: torch.nn.Module) -> list[str]:
    """All parameters of forward that have a name, in order."""
    if isinstance(module, torch.jit.ScriptModule):
        return [one.name for one in schema_of(module)]
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [one.name for one in inspect.signature(module.forward).parameters.values() if one.kind in kinds]


def leaves_of(module: torch.nn.Module, example: Any) -> list[InputSpec]:
    """The leaves of an example: a tensor, a tuple of arguments, a mapping by name, or `(arguments, mapping)`.

    Raises:
        ModelError: it holds something that no config describes.
    """
    return named_leaves(accepted(module), example)


def named_leaves(names: Sequence[str] | None, example: Any) -> list[InputSpec]:
    """The same for a model that is not here: `names` are its parameters, None where only names in the example count.

    Raises:
        ModelError: it holds something that no config describes, has no names, or more arguments than there are.
    """
    args, kwargs = _parted(example)
    if args and names is None:
        raise ModelError("inputs of a function that is called elsewhere need names: inputs={'x': tensor}")
    names = names or []
    if len(args) > len(names):
        takes = f"forward({', '.join(names)}) takes {counted(len(names), 'argument')}"
        raise ModelError(f"{takes}, and the example has {len(args)}")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    ordered = sorted(given, key=lambda name: names.index(name) if name in names else len(names))
    return [leaf for name in ordered for leaf in _leaves((name,), given[name])]


def _parted(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if (
        isinstance(example, tuple)
        and len(example) == 2
        and isinstance(example[0], tuple)
        and isinstance(example[1], dict)
    ):
        return example[0], example[1]
    if isinstance(example, Mapping):
        return (), {str(name): value for name, value in example.items()}
    return (tuple(example) if isinstance(example, tuple | list) else (example,)), {}


def _leaves(path: tuple[str | int, ...], value: Any) -> Iterator[InputSpec]:
    if isinstance(value, torch.Tensor):
        yield described(path, value)
    elif value is None or isinstance(value, bool | int | float | str):
        yield InputSpec(path, constant=value)
    elif isinstance(value, Mapping) and value:
        for key, one in value.items():
            yield from _leaves((*path, str(key)), one)
    elif isinstance(value, Sequence) and value:
        for index, one in enumerate(value):
            yield from _leaves((*path, index), one)
    else:
        raise ModelError(
            f"the example has a {type(value).__name__} for {'.'.join(map(str, path))}, which a config cannot describe. "
            "Next step: a function that returns a module whose forward takes tensors"
        )


def described(path: tuple[str | int, ...], tensor: torch.Tensor) -> InputSpec:
    """A tensor as a leaf: of whole numbers it holds the range, of a mask of ones the filling."""
    dtype, shape = str(tensor.dtype).removeprefix("torch."), tuple(map(int, tensor.shape))
    if tensor.is_floating_point() or tensor.is_complex():
        return InputSpec(path, dtype, shape)
    if tensor.numel() and bool((tensor == 1).all()) and any("mask" in str(step) for step in path):
        return InputSpec(path, dtype, shape, fill=1.0)
    if tensor.dtype is torch.bool:
        return InputSpec(path, dtype, shape)
    low, high = (int(tensor.min()), int(tensor.max())) if tensor.numel() else (0, 1)
    return InputSpec(path, dtype, shape, low=float(min(low, 0)), high=float(max(high, 1) + 1))
