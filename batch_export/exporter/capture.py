"""Capture: a module and example inputs -> an exported program, by strategies that are tried in order.

Arrives: a module, callable, scripted module or exported program, example inputs and dynamic shapes. Leaves: the
exported program, which strategy made it, and what became of each one tried before. Nothing of ONNX is consulted here,
so one capture serves every opset.
"""

from __future__ import annotations

import inspect
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from batch_export.errors import CaptureError, DynamicShapeError
from batch_export.exporter import dynamic_shapes as shapes
from batch_export.exporter import torchscript
from batch_export.exporter.export_switch import in_onnx_export
from batch_export.exporter.fake_quantisation import fake_quantisation
from batch_export.exporter.guard_sources import Observation, observing
from batch_export.exporter.guard_symbols import readable
from batch_export.exporter.guards import Guard, collect, fixed_sizes
from batch_export.exporter.recurrent_shapes import recurrent_shapes


@dataclass(slots=True)
class Attempt:
    """One strategy that was tried: its name, how long it took in seconds, and why it failed (empty when it did not)."""

    strategy: str
    seconds: float
    error: str = ""
    exception: BaseException | None = None


@dataclass(slots=True)
class Captured:
    """What capture made.

    Attributes:
        program: torch's exported program.
        axis_names: torch's symbol -> the axis name that was asked for.
        derived_names: an expression of axes -> the name that was asked for it.
        guards: conditions under which the program holds; those that restrict an axis first.
        attempts: every strategy tried, the successful one last.
    """

    program: torch.export.ExportedProgram
    axis_names: dict[str, str] = field(default_factory=dict)
    guards: list[Guard] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    derived_names: dict[str, str] = field(default_factory=dict)

    @property
    def restrictions(self) -> list[Guard]:
        """The guards that take sizes away from an axis that was asked for as dynamic."""
        return [guard for guard in self.guards if guard.restricts]

    @property
    def strategy(self) -> str:
        """The strategy that succeeded."""
        return self.attempts[-1].strategy if self.attempts else "ExportedProgram"


class _CallableModule(torch.nn.Module):
    """A plain function as a module, with the function's own parameter names."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function
        self.forward = function  # type: ignore[method-assign]

    def forward(self, *args: Any, **kwargs: Any) -> Any:  # replaced in __init__; kept for type checkers
        return self._function(*args, **kwargs)


def as_module(model: Any) -> torch.nn.Module:
    """A module as it is; a function or other callable wrapped into one.

    Raises:
        CaptureError: for anything that cannot be called.
    """
    if isinstance(model, torch.nn.Module):
        return model
    if callable(model):
        return _CallableModule(model)
    raise CaptureError(
        f"the model is a {type(model).__name__}",
        next_step="pass a torch.nn.Module, a function, a torch.export.ExportedProgram or a scripted module",
    )


def named_inputs(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The example inputs by parameter name, whatever kind of model it is."""
    if isinstance(model, torch.export.ExportedProgram):
        module: torch.nn.Module = model.module(check_guards=False)
    elif torchscript.is_scripted(model):
        module = torchscript.as_eager(model, args, kwargs)
    else:
        module = as_module(model)
    _check_call(module, args, kwargs)
    return shapes.bind_names(module, args, kwargs)


def _torch_export(strict: bool) -> Callable[..., torch.export.ExportedProgram]:
    def run(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], form: Any) -> Any:
        return torch.export.export(module, args, kwargs=kwargs or None, dynamic_shapes=form, strict=strict)

    return run


def _draft(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], form: Any) -> Any:
    return torch.export.draft_export(module, args, kwargs=kwargs or None, dynamic_shapes=form)


def _warn_unsound(strategy: str, program: torch.export.ExportedProgram) -> None:
    """The last two strategies may have assumed what holds for the example inputs only."""
    report = getattr(program, "_report", None)
    if strategy == "draft_export" and report is not None and not report.successful():
        text = str(report).strip()
        warnings.warn(f"draft_export made assumptions that hold for the example inputs:\n{text}", stacklevel=4)
    if strategy == "torch.jit.trace":
        warnings.warn(
            "the model was captured by torch.jit.trace: branches that depend on data are those of the example inputs",
            stacklevel=4,
        )


def _jit_trace(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], form: Any) -> Any:
    named = shapes.bind_names(module, args, kwargs)
    traced = torch.jit.trace(module, tuple(named.values()), strict=False, check_trace=False)
    eager = torchscript.as_eager(traced, tuple(named.values()), {})
    return _torch_export(strict=False)(eager, tuple(named.values()), {}, None if form is None else tuple(form.values()))


STRATEGIES: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("torch.export(strict=False)", _torch_export(strict=False)),
    ("torch.export(strict=True)", _torch_export(strict=True)),
    ("draft_export", _draft),
    ("torch.jit.trace", _jit_trace),
)
"""In the documented order; an exported program is taken as it is before any of them."""


def capture(
    model: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    allow_guards: bool = False,
    strategies: Sequence[tuple[str, Callable[..., Any]]] = STRATEGIES,
) -> Captured:
    """Captures a model.

    Args:
        model: a module, a callable, or an exported program (which is returned as it is).
        args: positional example inputs.
        kwargs: keyword example inputs.
        dynamic_shapes: any form that `dynamic_shapes.canonical` accepts.
        allow_guards: keep a program that holds for some sizes of a dynamic axis only, with its guards.
        strategies: what to try, in order.

    Raises:
        CaptureError: if every strategy failed; the first informative error is its cause.
        DynamicShapeError: if the dynamic shapes do not fit the inputs, or the model fixes an axis asked for as dynamic.
    """
    arguments, keywords = tuple(args), dict(kwargs or {})
    if isinstance(model, torch.export.ExportedProgram):
        return _as_it_is(model, arguments, keywords, dynamic_shapes, allow_guards)
    if torchscript.is_scripted(model):
        begun = time.perf_counter()
        with in_onnx_export():
            model = torchscript.as_eager(model, arguments, keywords)
        taken = time.perf_counter() - begun
        captured = capture(
            model, args, kwargs, dynamic_shapes=dynamic_shapes, allow_guards=allow_guards, strategies=strategies[:1]
        )
        captured.attempts[0] = Attempt("TorchScript converter", taken + captured.attempts[0].seconds)
        return captured
    module = as_module(model)
    _check_call(module, arguments, keywords)
    keywords = _in_forward_order(module, keywords)
    asked = shapes.canonical(dynamic_shapes, module, arguments, keywords)
    attempts: list[Attempt] = []
    for name, strategy in strategies:
        begun = time.perf_counter()
        with observing() as seen:
            try:
                with (
                    in_onnx_export(),
                    fake_quantisation(),
                    recurrent_shapes(),
                    torch.no_grad(),
                    unset_fake_temporarily(),
                    warnings.catch_warnings(),
                ):
                    warnings.simplefilter("ignore")
                    program = strategy(module, arguments, keywords, asked.torch_form)
            except Exception as error:
                attempts.append(_failed(name, time.perf_counter() - begun, error))
                _refuse_fixed_axis(error, seen, asked)
                continue
        attempts.append(Attempt(name, time.perf_counter() - begun))
        _warn_unsound(name, program)
        return _finished(program, asked, attempts, allow_guards)
    first = attempts[0]
    tried = "; ".join(f"{attempt.strategy}: {attempt.error}" for attempt in attempts)
    raise CaptureError(
        f"the model could not be captured. {first.strategy} said {first.error}",
        next_step=f"all strategies: {tried}. Export with report=True for the whole story",
        attempts=tuple(attempts),
    ) from first.exception


def _failed(strategy: str, seconds: float, error: Exception) -> Attempt:
    lines = str(error).strip().splitlines()
    return Attempt(strategy, seconds, f"{type(error).__name__}: {lines[0] if lines else ''}", error)


def _as_it_is(
    program: torch.export.ExportedProgram,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic_shapes: Any,
    allow_guards: bool,
) -> Captured:
    """An exported program is not captured again; dynamic shapes name its axes, which must be dynamic already."""
    attempts = [Attempt("ExportedProgram", 0.0)]
    if not args and not kwargs and program.example_inputs:
        args, kwargs = program.example_inputs
    if dynamic_shapes is None:
        return Captured(program, {}, collect(program, [], {}), attempts)
    if not args and not kwargs:
        raise DynamicShapeError(
            "dynamic_shapes were given for an exported program without example inputs",
            next_step="pass args and kwargs too, so that the shapes can be tied to the inputs",
        )
    asked = shapes.canonical(dynamic_shapes, program.module(check_guards=False), args, kwargs)
    return _finished(program, asked, attempts, allow_guards)


def _finished(
    program: torch.export.ExportedProgram, asked: shapes.DynamicShapes, attempts: list[Attempt], allow_guards: bool
) -> Captured:
    names = shapes.axis_names(program, asked)
    guards = collect(program, asked.axes, asked.aliases)
    captured = Captured(program, names, guards, attempts, shapes.derived_names(program, asked, names))
    if captured.restrictions and not allow_guards:
        raise _narrower(captured.restrictions, asked)
    return captured


def _narrower(restrictions: Sequence[Guard], asked: shapes.DynamicShapes) -> DynamicShapeError:
    first = next((guard for guard in restrictions if guard.source), restrictions[0])
    others = [guard.condition for guard in restrictions if guard is not first]
    more = f"; also only while {', '.join(f'`{condition}`' for condition in others[:4])}" if others else ""
    places = {
        axis.text: f"axis {axis.axis} ({axis.name or 'dynamic'}) of the input {readable(axis.where)}"
        for axis in reversed(asked.axes)
    }
    listed = " and ".join(places.get(text, text) for text in first.axes)
    return DynamicShapeError(
        f"{listed} {'was' if len(first.axes) == 1 else 'were'} asked for as dynamic, but the captured program holds "
        f"only while `{first.condition}`{more}",
        source=first.source or None,
        next_step="declare the range that you need (torch.export.Dim(name, min=..., max=...)), change the model at "
        "that line, or pass allow_guards=True to keep the guard in the model's metadata and in the report",
    )


def _refuse_fixed_axis(error: Exception, seen: Observation, asked: shapes.DynamicShapes) -> None:
    """Raises when a strategy failed because the model fixes an axis that was asked for as dynamic.

    Raises:
        DynamicShapeError: naming the axis, its input, the size and the line.
    """
    text = str(error)
    if not asked.axes or "data-dependent" in text:
        return
    if "specialized" not in text and "Constraints violated" not in text:
        return
    for axis, size, source in fixed_sizes(seen.environment, asked.axes, asked.aliases):
        raise DynamicShapeError(
            f"axis {axis.axis} ({axis.name or 'dynamic'}) of the input {readable(axis.where)} was asked for as "
            f"dynamic, but the model makes it {size}",
            source=source or None,
            next_step="remove that axis from dynamic_shapes, use Dim.AUTO to let the exporter decide, or change the "
            "model at that line so that this size is not fixed",
        ) from error
    lines = [line.strip(" -") for line in text.splitlines() if "specialized" in line or "must" in line]
    raise DynamicShapeError(
        f"the dynamic shapes do not fit the model: {lines[0] if lines else text.splitlines()[0]}",
        next_step="remove that axis from dynamic_shapes, or use Dim.AUTO to let the exporter decide",
    ) from error


def _in_forward_order(module: torch.nn.Module, kwargs: dict[str, Any]) -> dict[str, Any]:
    """torch.export names inputs by forward's signature and orders them as given: only in this order do both agree."""
    parameters = inspect.signature(module.forward).parameters
    return {name: kwargs[name] for name in [*parameters, *kwargs] if name in kwargs}


def _check_call(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    signature = inspect.signature(module.forward)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise CaptureError(
            f"the example inputs do not fit forward({', '.join(signature.parameters)}): {error}",
            next_step="pass args and kwargs as the model is called",
        ) from error
