"""Capture: a module and example inputs -> an exported program, by strategies that are tried in order.

Arrives: a module, callable, scripted module or exported program, example inputs and dynamic shapes. Leaves: the
exported program, which strategy made it, and what became of each one tried before. Nothing of ONNX is consulted here,
so one capture serves every opset.
"""

from __future__ import annotations

import contextlib
import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils import _pytree as pytree

from batch_export.errors import CaptureError, DynamicShapeError
from batch_export.exporter.capture import assumptions, attributes, narrowing, torchscript
from batch_export.exporter.capture import dynamic_shapes as shapes
from batch_export.exporter.capture.captured import Attempt, Captured, warn
from batch_export.exporter.capture.decided_at_one import decided_otherwise
from batch_export.exporter.capture.export_switch import in_onnx_export
from batch_export.exporter.capture.fake_quantisation import fake_quantisation
from batch_export.exporter.capture.free_lengths import free_lengths
from batch_export.exporter.capture.guard_sources import Decision, Observation, keep_lines_of, observing, users_line
from batch_export.exporter.capture.guard_symbols import readable
from batch_export.exporter.capture.guards import Guard, axes_of_symbols, collect, environment_of, fixed_sizes
from batch_export.exporter.capture.quiet import quiet
from batch_export.exporter.capture.rank_limits import sizes_not_one
from batch_export.exporter.capture.recurrent_shapes import recurrent_shapes
from batch_export.exporter.capture.strategies import ASSUMING, NON_STRICT, STRATEGIES, STRICT, assumed, decision_on_data


class _CallableModule(torch.nn.Module):
    """A plain function as a module, with the function's own parameter names."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function
        self.forward = function  # type: ignore[method-assign]
        keep_lines_of(function)

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


def capture(
    model: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    allow_guards: bool = False,
    allow_assumptions: bool | None = None,
    strategies: Sequence[tuple[str, Callable[..., Any]]] = STRATEGIES,
) -> Captured:
    """Captures a model.

    Args:
        model: a module, a callable, or an exported program (which is returned as it is).
        args: positional example inputs.
        kwargs: keyword example inputs.
        dynamic_shapes: any form that `dynamic_shapes.canonical` accepts.
        allow_guards: keep a program that holds for some sizes of a dynamic axis only, with its guards.
        allow_assumptions: keep a program that takes something about the data for granted, after it was run against the
            model; as `allow_guards` when None.
        strategies: what to try, in order.

    Raises:
        CaptureError: if every strategy failed; the first informative error is its cause.
        DynamicShapeError: if the dynamic shapes do not fit the inputs, or the model fixes an axis asked for as dynamic.
    """
    arguments, keywords = tuple(args), dict(kwargs or {})
    allow_assumptions = allow_guards if allow_assumptions is None else allow_assumptions
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
    arguments, keywords = _one_tensor_each(module, arguments, _in_forward_order(module, keywords))
    asked = shapes.canonical(dynamic_shapes, module, arguments, keywords)
    with attributes.watching(module) as changed:
        captured = _by_strategies(module, arguments, keywords, asked, strategies, allow_guards, allow_assumptions)
        fixes = [place for guard in captured.guards for place in guard.fixes]
        narrower = narrowing.that_matter(captured, module, arguments, keywords)
        if allow_guards:
            captured.guards = [replace(one, restricts=one.restricts or one in narrower) for one in captured.guards]
            narrower = []
        fixes += [place for guard in narrower for place in guard.narrows]
        if fixes and captured.strategy not in ASSUMING:  # free in name only: elsewhere the file would be wrong, or fail
            asked.fix(list(dict.fromkeys(fixes)))
            captured = _by_strategies(module, arguments, keywords, asked, strategies, allow_guards, allow_assumptions)
            captured.fixed = narrower
    captured.changed_attributes = list(changed)
    warn(captured)
    return captured


def _by_strategies(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    asked: shapes.DynamicShapes,
    strategies: Sequence[tuple[str, Callable[..., Any]]],
    allow_guards: bool,
    allow_assumptions: bool,
) -> Captured:
    """The first strategy's program that may be given to the caller."""
    attempts: list[Attempt] = []
    held: _Held | None = None
    for name, strategy in strategies:
        if held is not None and name != STRICT:
            break
        decision = decision_on_data(attempts[0].exception) if attempts else None
        if name in ASSUMING and decision is not None and not allow_assumptions:
            raise assumptions.refused([decision], attempts) from attempts[0].exception
        begun = time.perf_counter()
        with observing() as seen:
            try:
                with free_lengths() if name == NON_STRICT and asked.axes else contextlib.nullcontext():
                    program = _run(strategy, module, args, kwargs, asked.torch_form)
            except Exception as error:
                attempts.append(_failed(name, time.perf_counter() - begun, error))
                fixed = _fixed_axis(error, seen, asked)
                if fixed is not None and held is None:
                    held = _Held(None, fixed)
                    if not (seen.made_plain or seen.made_index):
                        break
                continue
        attempts.append(Attempt(name, time.perf_counter() - begun))
        try:
            called = (module, args, kwargs)
            captured = _finished(program, asked, list(attempts), allow_guards, called, tuple(seen.decisions))
        except DynamicShapeError as error:
            held = held or _Held(None, error)
            if not (seen.made_plain or seen.made_index):
                break
            continue
        if held is not None and not captured.is_freer_than(held.captured):
            break
        if name == NON_STRICT and seen.made_plain and captured.narrowed(asked) and len(strategies) > 1:
            held = _Held(captured)
            continue
        if name in ASSUMING:
            captured.assumptions = assumed(name, program, decision)
            if captured.assumptions and not allow_assumptions:
                raise assumptions.refused(captured.assumptions, attempts)
            assumptions.check(name, program, module, args, kwargs, captured.assumptions)
        return captured
    if held is not None:
        return held.result()
    first, *others = attempts
    tried = "; ".join(f"{attempt.strategy}: {attempt.error}" for attempt in others)
    raise CaptureError(
        f"the model could not be captured. {first.strategy} said {first.error}{f'. And {tried}' if tried else ''}",
        source=users_line(first.exception) or None,
        next_step="write that line with operators whose shapes do not depend on data, or hide it in a custom operator "
        "(torch.library.custom_op) with an entry in custom_translation_table; report=True writes the whole story",
        attempts=tuple(attempts),
    ) from first.exception


@dataclass(slots=True)
class _Held:
    """A first result that a second strategy may beat: dynamo keeps sizes free that Python's `int()` makes numbers."""

    captured: Captured | None
    error: DynamicShapeError | None = None

    def result(self) -> Captured:
        if self.captured is not None:
            return self.captured
        assert self.error is not None
        raise self.error


def _run(
    strategy: Callable[..., Any], module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], form: Any
) -> torch.export.ExportedProgram:
    with (
        in_onnx_export(),
        fake_quantisation(),
        recurrent_shapes(),
        torch.no_grad(),
        unset_fake_temporarily(),
        quiet(),
    ):
        program: torch.export.ExportedProgram = strategy(module, args, kwargs, form)
    return program


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
    program: torch.export.ExportedProgram,
    asked: shapes.DynamicShapes,
    attempts: list[Attempt],
    allow_guards: bool,
    called: tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]] | None = None,
    decisions: Sequence[Decision] = (),
) -> Captured:
    """The program with its guards, which are tried on `called` (the model and its inputs) where it tells something."""
    names = shapes.axis_names(program, asked)
    guards = collect(program, asked.axes, asked.aliases)
    captured = Captured(program, names, guards, attempts, shapes.derived_names(program, asked, names))
    captured.not_one = sizes_not_one(program, asked.axes, asked.aliases, names)
    if called is not None and captured.restrictions:
        real = narrowing.that_restrict(captured, *called)
        captured.guards = [replace(one, restricts=one.restricts and one in real) for one in captured.guards]
    if captured.restrictions and not allow_guards:
        raise _narrower(captured.restrictions, asked)
    environment = environment_of(program)
    if called is not None and decisions and environment is not None:
        symbols = axes_of_symbols(environment, asked.axes, asked.aliases)
        asked_for = {symbol: axis for symbol, axis in symbols.items() if axis in asked.axes}
        captured.not_one += decided_otherwise(captured, decisions, asked_for, *called)
    dropped = [guard for guard in captured.not_one if guard.restricts]
    if dropped and not allow_guards:
        raise _other_rank(dropped[0])
    return captured


def _other_rank(guard: Guard) -> DynamicShapeError:
    advice = "squeeze axes that are always 1, " if "drops" in guard.consequence else ""
    return DynamicShapeError(
        f"{' and '.join(guard.axes)} may be 1, and then {guard.consequence.replace('that axis', 'an axis')}, which one "
        f"file cannot: it holds only while `{guard.condition}`",
        source=guard.source or None,
        next_step=f"{advice}declare the range (torch.export.Dim(name, min=2)), or pass allow_guards=True to keep the "
        "guard in the model's metadata",
    )


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


def _fixed_axis(error: Exception, seen: Observation, asked: shapes.DynamicShapes) -> DynamicShapeError | None:
    """The error, with axis, input, size and line, when a strategy failed because the model fixes a dynamic axis."""
    text = str(error)
    if not asked.axes or "data-dependent" in text:
        return None
    if "specialized" not in text and "Constraints violated" not in text:
        return None
    refusal: DynamicShapeError
    for axis, size, source in fixed_sizes(seen.environment, asked.axes, asked.aliases):
        refusal = DynamicShapeError(
            f"axis {axis.axis} ({axis.name or 'dynamic'}) of the input {readable(axis.where)} was asked for as "
            f"dynamic, but the model makes it {size}",
            source=source or None,
            next_step="remove that axis from dynamic_shapes, use Dim.AUTO to let the exporter decide, or change the "
            "model at that line so that this size is not fixed",
        )
        refusal.__cause__ = error
        return refusal
    lines = [line.strip(" -") for line in text.splitlines() if "specialized" in line or "must" in line]
    refusal = DynamicShapeError(
        f"the dynamic shapes do not fit the model: {lines[0] if lines else text.splitlines()[0]}",
        next_step="remove that axis from dynamic_shapes, or use Dim.AUTO to let the exporter decide",
    )
    refusal.__cause__ = error
    return refusal


def _one_tensor_each(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Inputs none of which is another one or a weight: torch takes one object for one tensor in every call."""
    attributes_of = [value for one in module.modules() for value in vars(one).values()]
    seen = {id(tensor) for tensor in (*module.parameters(), *module.buffers(), *attributes_of)}

    def own(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) in seen:
            return tensor.detach().clone()
        seen.add(id(tensor))
        return tensor

    inputs: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_map_only(torch.Tensor, own, (args, kwargs))
    return inputs


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
