"""What callers of `export()` may pass in several ways, in one way; and the parameters that no longer do anything.

Arrives: arguments as given. Leaves: positional and keyword example inputs, and warnings. No model is touched.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from batch_export.calling.users_line import users_level

_DEPRECATED: Mapping[str, tuple[object, str]] = {
    "training": (None, "put the model into the mode that you want with model.train() or model.eval() before exporting"),
    "operator_export_type": (
        None,
        "leave it out: only ONNX operators are produced; use custom_translation_table for others",
    ),
    "operator_export_types": (
        None,
        "leave it out: only ONNX operators are produced; use custom_translation_table for others",
    ),
    "do_constant_folding": (True, "use optimize=True or optimize=False"),
    "custom_opsets": (None, "pass version=... to torch.onnx.ops.symbolic, or set opset_imports on program.model"),
    "export_modules_as_functions": (False, "it is called modules_as_functions now, and is taken as that"),
    "autograd_inlining": (True, "leave it out: autograd functions are always inlined"),
}


_TAKEN = frozenset({"export_modules_as_functions"})
"""Those that mean another parameter of today."""
_TORCHS_DEFAULTS = {"training": "EVAL", "operator_export_type": "ONNX", "operator_export_types": "ONNX"}


def warn_deprecated(given: Mapping[str, object]) -> None:
    """Warns about each deprecated parameter that has a value of its own, and says what to do instead.

    Raises:
        TypeError: for a parameter that `export` does not have.
    """
    for name, value in given.items():
        if name not in _DEPRECATED:
            raise TypeError(f"export() has no parameter {name!r}")
        _, instead = _DEPRECATED[name]
        if not is_default(name, value):
            warnings.warn(
                f"export(): {name} is deprecated{'' if name in _TAKEN else ' and does nothing'}; {instead}",
                DeprecationWarning,
                stacklevel=3,
            )


def is_default(name: str, value: object) -> bool:
    """Whether a deprecated parameter is given what it has anyway: None, or torch's own default."""
    default, _ = _DEPRECATED[name]
    return value is None or value == default or getattr(value, "name", "") == _TORCHS_DEFAULTS.get(name)


def is_captured(model: object) -> bool:
    """Whether a model is one that torch.onnx.export takes for its newer exporter, whatever `dynamo` says."""
    return isinstance(model, torch.export.ExportedProgram) or _brings_inputs(model)


def _brings_inputs(model: object) -> bool:
    """Whether it is a `torch.onnx.ExportableModule`, which older versions of torch do not have."""
    kind = getattr(torch.onnx, "ExportableModule", None)
    return kind is not None and isinstance(model, kind)


def of_exportable_module(
    model: object, args: object, kwargs: object, dynamic_shapes: object, input_names: object, output_names: object
) -> tuple[object, Any, Any, Any, Any]:
    """The inputs, shapes and names that a `torch.onnx.ExportableModule` brings along, where no inputs are given."""
    if not _brings_inputs(model) or args or kwargs:
        return args, kwargs, dynamic_shapes, input_names, output_names
    module: Any = model
    args, kwargs = module.example_arguments()
    return (
        args,
        kwargs,
        module.dynamic_shapes() if dynamic_shapes is None else dynamic_shapes,
        input_names or module.input_names(),
        output_names or module.output_names(),
    )


_TORCHS_WORDS = {
    "dynamic_axes": "from_dynamic_axes_to_dynamic_shapes is deprecated and will be removed in a future release. This "
    "function converts 'dynamic_axes' format (including custom axis names) to 'dynamic_shapes' format. Instead of "
    "relying on this conversion, provide 'dynamic_shapes' directly with custom names."
}
"""What torch.onnx.export says in the same place: filters of warnings that were written for it go on to work."""


def warn_of_older_ways(f: object, dynamic_axes: object, dynamo: bool) -> None:
    """Warns of what still works and has a better way by now; of `dynamo=False` torch's own exporter says so."""
    older = {
        "dynamic_axes": (bool(dynamic_axes) and dynamo, "dynamic_shapes=..., a tree like the inputs"),
        "a file object as f": (hasattr(f, "write"), "a path, or program.save(stream)"),
    }
    for name, (given, instead) in older.items():
        if given:
            message = f"export(): {name} is deprecated; use {instead}"
            if name in _TORCHS_WORDS:
                message += f" (torch.onnx.export says: {_TORCHS_WORDS[name]})"
            warnings.warn(message, DeprecationWarning, stacklevel=users_level())


def example_inputs(
    model: object, args: object, kwargs: Mapping[str, object] | None
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Positional and keyword inputs: a single value becomes a tuple, a trailing dict of parameter names keywords.

    A dict at the end of `args` is taken as keyword inputs when no `kwargs` are given and all its keys are parameters
    that the other arguments leave open; otherwise it is an ordinary input of that type. An exported program for which
    none are given brings its own.
    """
    is_given = bool(kwargs) or not isinstance(args, (tuple, list)) or bool(args)
    if isinstance(model, torch.export.ExportedProgram) and model.example_inputs is not None and not is_given:
        own, keywords = model.example_inputs
        return tuple(own), dict(keywords)
    arguments = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    if kwargs or not arguments or not isinstance(arguments[-1], dict):
        return arguments, dict(kwargs or {})
    last = arguments[-1]
    if not last:
        return (arguments[:-1], {}) if _binds(model, arguments[:-1], {}) else (arguments, {})
    if all(isinstance(key, str) for key in last) and _binds(model, arguments[:-1], last):
        return arguments[:-1], dict(last)
    return arguments, {}


def _binds(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    if isinstance(model, torch.export.ExportedProgram):
        model = model.module(check_guards=False)
    called: Callable[..., Any] = model.forward if isinstance(model, torch.nn.Module) else model
    try:
        signature = inspect.signature(called)
        signature.bind(*args, **kwargs)
    except (TypeError, ValueError):
        return False
    return all(name in signature.parameters for name in kwargs)
