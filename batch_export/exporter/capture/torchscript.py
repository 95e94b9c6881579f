"""Scripted and traced modules -> eager modules that torch.export can capture.

Arrives: a `ScriptModule` or `ScriptFunction` with example inputs. Leaves: a module with the same parameters, whose
forward runs the TorchScript graph (`script_graphs.py`). Nothing of ONNX is known here; TorchScript's own ONNX exporter
is a peer and lives outside the core.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch.utils import _pytree as pytree

from batch_export.errors import CaptureError
from batch_export.exporter.capture import script_graphs


def is_scripted(model: object) -> bool:
    """Whether the model is a `ScriptModule` or a `ScriptFunction`."""
    return isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction, torch._C.ScriptFunction))


def as_eager(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.nn.Module:
    """A module that runs a scripted model's graph by Python, with the same weights under the same names.

    The module takes its inputs by position and by the names of the model's forward.

    Raises:
        CaptureError: if the inputs do not fit forward.
    """
    signature, _ = _by_position(model, args, kwargs)
    return _Interpreted(model, signature)


class _Part(torch.nn.Module):
    """A module of a scripted model: its weights, its parts, and whatever else its code reads and sets."""

    def __init__(self, scripted: Any) -> None:
        super().__init__()
        self._scripted = scripted
        self.training = scripted is not None and scripted.hasattr("training") and bool(scripted.getattr("training"))
        if scripted is None:
            return
        held: Any = torch._C
        for name, parameter in held.ParameterDict(scripted).items():
            self.register_parameter(name, _parameter(parameter))
        for name, buffer in held.BufferDict(scripted).items():
            self.register_buffer(name, buffer)
        for name, part in held.ModuleDict(scripted).items():
            self.register_module(name, _Part(part))

    def read(self, name: str) -> Any:
        """What a graph finds under a name."""
        if name in self._modules or name in self._parameters or name in self._buffers or name in vars(self):
            return getattr(self, name)
        return self._scripted.getattr(name)

    def write(self, name: str, value: object) -> None:
        """What a graph sets: TorchScript takes any tensor in the place of a parameter, which it hides from then on."""
        if name in self._parameters and not isinstance(value, torch.nn.Parameter):
            vars(self)[name] = value
        else:
            setattr(self, name, value)


def _parameter(given: torch.Tensor) -> torch.nn.Parameter:
    if isinstance(given, torch.nn.Parameter):
        return given
    return torch.nn.Parameter(given.detach(), requires_grad=given.requires_grad)


class _Interpreted(_Part):
    """A scripted model or function, run node by node; its forward has the parameters of the scripted one."""

    def __init__(self, model: Any, signature: inspect.Signature) -> None:
        is_module = isinstance(model, torch.nn.Module)
        super().__init__(model._c if is_module else None)
        graph = model.inlined_graph

        def run(*args: object, **kwargs: object) -> object:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return script_graphs.run(graph, (self, *bound.args) if is_module else bound.args)

        run.__signature__ = signature  # type: ignore[attr-defined]
        self.forward = run


def every_input(model: object, args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[object, ...]:
    """The value of each of forward's parameters in its order, defaults included, as the converted module is called."""
    return _by_position(model, args, kwargs)[1]


def as_called(
    model: object, args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[tuple[object, ...], dict[str, object]]:
    """The inputs as the converted module is called: by position, and by name behind a default that is a tensor.

    Such defaults are left out and so are no inputs of a file, as those of any other model.
    """
    signature, values = _by_position(model, args, kwargs)
    names = list(signature.parameters)
    given = {*names[: len(args)], *kwargs}
    held = [
        name not in given and any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value))
        for name, value in zip(names, values, strict=True)
    ]
    count = held.index(True) if any(held) else len(names)
    return values[:count], {name: kwargs[name] for name in names[count:] if name in kwargs}


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
