"""Scripted and traced modules -> eager modules that torch.export can capture.

Arrives: a `ScriptModule` or `ScriptFunction` with example inputs. Leaves: a module with the same parameters, whose
sizes are free wherever the TorchScript graph leaves them free. Nothing of ONNX is known here; TorchScript's own ONNX
exporter is a peer and lives outside the core.
"""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import torch

from batch_export.errors import CaptureError


def is_scripted(model: object) -> bool:
    """Whether the model is a `ScriptModule` or a `ScriptFunction`."""
    return isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction, torch._C.ScriptFunction))


def as_eager(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.nn.Module:
    """Converts a scripted model through torch's own converter.

    The module takes its inputs by position and by the names of the model's forward.

    Raises:
        CaptureError: if the inputs do not fit forward, or the graph has an operator that the converter does not know.
    """
    from torch._export.converter import TS2EPConverter  # lazy: only scripted models need it

    signature, values = _by_position(model, args, kwargs)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # NOTE: with keyword inputs the converter (torch 2.13) fails an internal check, or ends the process.
            program = TS2EPConverter(model, values, None).convert()
            return _with_names(program.module(check_guards=False), signature)
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        raise CaptureError(
            f"the TorchScript model could not be converted: {type(error).__name__}: {first}",
            next_step="export the original module instead, or pass dynamo=False for the TorchScript exporter",
        ) from error


def every_input(model: object, args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[object, ...]:
    """The value of each of forward's parameters in its order, defaults included, as the converted module is called."""
    return _by_position(model, args, kwargs)[1]


def _by_position(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[inspect.Signature, tuple[Any, ...]]:
    """Forward's parameters, and their values in its order."""
    method: Any = model.forward if isinstance(model, torch.nn.Module) else model
    schema = method.schema
    formals = list(schema.arguments)[1 if isinstance(model, torch.nn.Module) else 0 :]  # the first one is the module
    listed = ", ".join(formal.name for formal in formals)
    given = dict(zip([formal.name for formal in formals], args, strict=False))
    unknown = [name for name in kwargs if name not in {formal.name for formal in formals} or name in given]
    if len(args) > len(formals) or unknown:
        what = f"{', '.join(unknown)} too many" if unknown else f"{len(args)} inputs are given"
        raise CaptureError(
            f"the example inputs do not fit forward({listed}): {what}",
            next_step="pass args and kwargs as the model is called",
        )
    given |= kwargs
    missing = [one.name for one in formals if one.name not in given and not one.has_default_value()]
    if missing:
        raise CaptureError(
            f"the example inputs do not fit forward({listed}): {', '.join(missing)} is missing",
            next_step="pass args and kwargs as the model is called",
        )
    defaults = {one.name: one.default_value for one in formals if one.has_default_value()}
    values = tuple(given.get(one.name, defaults.get(one.name)) for one in formals)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [
        inspect.Parameter(one.name, kind, default=defaults.get(one.name, inspect.Parameter.empty)) for one in formals
    ]
    return inspect.Signature(parameters), values


def _with_names(module: torch.nn.Module, signature: inspect.Signature) -> torch.nn.Module:
    """The converted module, whose forward has the parameters of the scripted one."""
    module._forward_pre_hooks.clear()  # they refuse inputs by name
    module._forward_pre_hooks_with_kwargs.clear()
    by_position = module.forward

    def forward(*args: object, **kwargs: object) -> object:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return by_position(*bound.args)

    forward.__signature__ = signature  # type: ignore[attr-defined]
    module.forward = forward
    return module
