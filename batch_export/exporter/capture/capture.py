"""Capture: a module and example inputs -> an exported program, by strategies that are tried in order.

Arrives: a module, callable, scripted module or exported program, example inputs and dynamic shapes. Leaves: the
exported program, which strategy made it, and what became of each one tried before. Nothing of ONNX is consulted here,
so one capture serves every opset.
"""

from __future__ import annotations

import contextlib
import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils import _pytree as pytree

from batch_export.calling import caches, exported_inputs
from batch_export.errors import CaptureError, DynamicShapeError
from batch_export.exporter.capture import assumptions, attributes, torchscript
from batch_export.exporter.capture import dynamic_shapes as shapes
from batch_export.exporter.capture.blocks import by_blocks
from batch_export.exporter.capture.captured import Attempt, Captured, warn
from batch_export.exporter.capture.examples import Examples
from batch_export.exporter.capture.export_switch import in_onnx_export
from batch_export.exporter.capture.failures import not_captured
from batch_export.exporter.capture.fake_quantisation import fake_quantisation
from batch_export.exporter.capture.free_lengths import free_lengths
from batch_export.exporter.capture.guard_sources import Observation, keep_lines_of, observing
from batch_export.exporter.capture.guard_symbols import readable
from batch_export.exporter.capture.guard_trials import Trials, judge
from batch_export.exporter.capture.guards import Guard, collect, fixed_sizes, symbols_of
from batch_export.exporter.capture.other_inputs import Inputs
from batch_export.exporter.capture.quiet import quiet
from batch_export.exporter.capture.rank_limits import sizes_not_one
from batch_export.exporter.capture.recurrent_shapes import recurrent_shapes
from batch_export.exporter.capture.size_oblivious import size_oblivious
from batch_export.exporter.capture.strategies import ASSUMING, NON_STRICT, STRATEGIES, STRICT, assumed, decision_on_data
from batch_export.exporter.capture.transforms import own_levels
from batch_export.exporter.capture.trial import Outcome, Trial, is_fake

GuardMode = Literal["warn", "error", "allow"]
GUARD_MODES: tuple[GuardMode, ...] = get_args(GuardMode)


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
    caches.register()
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
    guards: GuardMode = "warn",
    allow_assumptions: bool | None = None,
    capture_blocks: bool = True,
    strategies: Sequence[tuple[str, Callable[..., Any]]] = STRATEGIES,
) -> Captured:
    """Captures a model.

    Args:
        model: a module, a callable, or an exported program (which is returned as it is).
        args: positional example inputs.
        kwargs: keyword example inputs.
        dynamic_shapes: any form that `dynamic_shapes.canonical` accepts.
        guards: what becomes of a program that holds for some sizes of a dynamic axis only, where the model has more:
            "warn" takes limits (`n >= 3`) beyond which the program fails, with a warning, and refuses what would give
            wrong numbers; "error" refuses both; "allow" takes both.
        allow_assumptions: keep a program that takes something about the data for granted, after it was run against the
            model; when None, only if `guards` is "allow".
        capture_blocks: trace blocks that are alike once, see `blocks.py`.
        strategies: what to try, in order.

    Raises:
        CaptureError: if every strategy failed; the first informative error is its cause.
        DynamicShapeError: if the dynamic shapes do not fit the inputs, or the model fixes an axis asked for as dynamic.
        ValueError: for another value of `guards`.
    """
    if guards not in GUARD_MODES:
        raise ValueError(f"guards is {guards!r}; it is one of {', '.join(map(repr, GUARD_MODES))}")
    caches.register()
    arguments, keywords = tuple(args), dict(kwargs or {})
    allow_assumptions = guards == "allow" if allow_assumptions is None else allow_assumptions
    if isinstance(model, torch.export.ExportedProgram):
        return _as_it_is(model, arguments, keywords, dynamic_shapes, guards)
    if torchscript.is_scripted(model):
        begun = time.perf_counter()
        with in_onnx_export():
            eager = torchscript.as_eager(model, arguments, keywords)
        every = torchscript.every_input(model, arguments, keywords)
        if isinstance(dynamic_shapes, (tuple, list)):
            dynamic_shapes = (*dynamic_shapes, *[None] * (len(every) - len(dynamic_shapes)))
        taken = time.perf_counter() - begun
        captured = capture(
            eager,
            every,
            dynamic_shapes=dynamic_shapes,
            guards=guards,
            capture_blocks=capture_blocks,
            strategies=strategies[:1],
        )
        captured.attempts[0] = Attempt("TorchScript converter", taken + captured.attempts[0].seconds)
        return captured
    module = as_module(model)
    _check_call(module, arguments, keywords)
    arguments, keywords = _one_tensor_each(module, arguments, _in_forward_order(module, keywords))
    asked = shapes.canonical(dynamic_shapes, module, arguments, keywords)
    if capture_blocks:
        strategies = [(name, by_blocks(one) if name == NON_STRICT else one) for name, one in strategies]
    course = _Course(module, (arguments, keywords), asked, tuple(strategies), guards, allow_assumptions)
    with attributes.watching(module) as changed:
        captured = course.from_examples()
        fixes = [place for guard in captured.guards for place in guard.fixes]
        squeezes = [guard for guard in captured.not_one if guard.narrows]
        narrower = [*(guard for guard in captured.guards if guard.narrows), *squeezes]
        if guards == "allow":
            captured.guards = [replace(one, restricts=one.restricts or bool(one.narrows)) for one in captured.guards]
            narrower = []
        fixes += [place for guard in narrower for place in guard.narrows]
        if fixes and captured.strategy not in ASSUMING:  # free in name only: elsewhere the file would be wrong, or fail
            asked.fix(list(dict.fromkeys(fixes)))
            captured = course.from_examples()
            captured.fixed = narrower
    captured.changed_attributes = list(changed)
    captured.program.example_inputs = (arguments, keywords)
    warn(captured)
    return captured


@dataclass(frozen=True, slots=True)
class _Course:
    """One capture: from which examples, by which strategies, and what may be given to the caller."""

    module: torch.nn.Module
    given: Inputs
    asked: shapes.DynamicShapes
    strategies: tuple[tuple[str, Callable[..., Any]], ...]
    guards: GuardMode
    allow_assumptions: bool

    def from_examples(self) -> Captured:
        """The program captured from the given example, or from another one where that says more.

        Raises:
            CaptureError, DynamicShapeError: as `capture`.
        """
        examples = Examples(self.asked, self.module, self.given)
        try:
            captured = self._from_first(examples)
        except DynamicShapeError as error:
            for captured in self._from_others(examples):
                return captured
            raise error
        if captured.harmful and captured.strategy not in ASSUMING:
            for other in self._from_others(examples):
                return other
        return captured

    def _from_first(self, examples: Examples) -> Captured:
        firm, left = examples.small(required=True), examples.small(required=False)
        if left:
            inputs = examples.lifted([*firm, *left])
            with contextlib.suppress(CaptureError, DynamicShapeError):
                captured = None if inputs is None else self._from(inputs)
                if captured is not None and self._are_free(captured, left):
                    return captured
            self.asked.fix([(axis.where, axis.axis) for axis in self.asked.axes if axis.text in left])
            examples = Examples(self.asked, self.module, self.given)
        inputs = examples.lifted(firm)
        if inputs is None:
            raise _one_only(self.asked, examples, firm)
        return self._from(inputs)

    def _from_others(self, examples: Examples) -> Iterator[Captured]:
        """Programs captured from examples of other sizes that hold for all sizes, the given ones among them."""
        for inputs in examples.others():
            with contextlib.suppress(CaptureError, DynamicShapeError):
                captured = self._from(inputs, [one for one in self.strategies if one[0] not in ASSUMING])
                if not captured.harmful and captured.free_axes() >= len(self.asked.axes):
                    yield captured

    def _from(self, inputs: Inputs, strategies: Sequence[tuple[str, Callable[..., Any]]] | None = None) -> Captured:
        return _by_strategies(self, inputs, strategies or self.strategies)

    def _are_free(self, captured: Captured, axes: Sequence[str]) -> bool:
        """Whether axes that were left to the exporter are free, and no guard takes sizes from them."""
        wanted = [(axis.where, axis.axis) for axis in self.asked.axes if axis.text in axes]
        held = {place for guard in (*captured.guards, *captured.not_one) for place in (*guard.fixes, *guard.narrows)}
        return captured.free_axes() == len(self.asked.axes) and not held.intersection(wanted)


def _one_only(asked: shapes.DynamicShapes, examples: Examples, axes: Sequence[str]) -> DynamicShapeError:
    axis = next(one for one in asked.axes if one.text == axes[0])
    return DynamicShapeError(
        f"axis {axis.axis} ({axis.name or 'dynamic'}) of the input {readable(axis.where)} has the example size "
        f"{examples.given[axis.text]}, and the model took no other that was tried",
        next_step="give an example in which that axis has two elements or more, or leave it out of dynamic_shapes",
    )


def _by_strategies(course: _Course, inputs: Inputs, strategies: Sequence[tuple[str, Callable[..., Any]]]) -> Captured:
    """The first strategy's program that may be given to the caller."""
    module, asked, allow_assumptions = course.module, course.asked, course.allow_assumptions
    args, kwargs = inputs
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
                mode = contextlib.nullcontext() if name in ASSUMING else size_oblivious()
                lengths = free_lengths() if name == NON_STRICT and asked.axes else contextlib.nullcontext()
                with mode, lengths:
                    program = _run(strategy, module, args, kwargs, asked.torch_form)
            except Exception as error:
                attempts.append(_failed(name, time.perf_counter() - begun, error))
                fixed = _fixed_axis(error, seen, asked)
                if fixed is not None and held is None:
                    held = _Held(None, fixed)
                    if not seen.is_freer_strictly:
                        break
                continue
        attempts.append(Attempt(name, time.perf_counter() - begun))
        try:
            captured = _finished(program, asked, list(attempts), course.guards, _Called(module, inputs, course.given))
            captured.blocks = getattr(program, "_blocks", [])
        except DynamicShapeError as error:
            held = held or _Held(None, error)
            if not seen.is_freer_strictly:
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
    raise not_captured(attempts) from attempts[0].exception


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
        own_levels(),
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
    guards: GuardMode,
) -> Captured:
    """An exported program is not captured again; dynamic shapes name its axes, which must be dynamic already."""
    attempts = [Attempt("ExportedProgram", 0.0)]
    if not args and not kwargs and program.example_inputs:
        args, kwargs = program.example_inputs
    args, given = exported_inputs.by_position(program, args, kwargs)
    kwargs = dict(given)
    if dynamic_shapes is None:
        symbols = symbols_of(program, [], {})
        return Captured(program, {}, collect(program, symbols), attempts, symbols=symbols)
    if not args and not kwargs:
        raise DynamicShapeError(
            "dynamic_shapes were given for an exported program without example inputs",
            next_step="pass args and kwargs too, so that the shapes can be tied to the inputs",
        )
    asked = shapes.canonical(dynamic_shapes, program.module(check_guards=False), args, kwargs)
    return _finished(program, asked, attempts, guards)


@dataclass(frozen=True, slots=True)
class _Called:
    """A model, the inputs that it was captured from, and those that its caller gave."""

    module: torch.nn.Module
    inputs: Inputs
    given: Inputs


def _finished(
    program: torch.export.ExportedProgram,
    asked: shapes.DynamicShapes,
    attempts: list[Attempt],
    mode: GuardMode,
    called: _Called | None = None,
) -> Captured:
    """The program with its guards, which are tried on the model and its inputs where they are at hand."""
    names = shapes.axis_names(program, asked)
    symbols = symbols_of(program, asked.axes, asked.aliases)
    derived = shapes.derived_names(program, asked, names)
    captured = Captured(program, names, collect(program, symbols), attempts, derived, symbols=symbols)
    captured.not_one = sizes_not_one(program, asked.axes, asked.aliases, names)
    if called is not None and symbols is not None:
        trials = Trials(program, symbols, called.module, *called.inputs)
        judge(captured, trials)
        if called.inputs is not called.given and not is_fake(called.module, *called.given):
            _hold_against_given(captured, asked, trials.beside(*called.given))
    refused = {"warn": captured.harmful, "error": captured.restrictions, "allow": []}[mode]
    if refused:
        raise _narrower(refused, asked)
    dropped = [guard for guard in captured.not_one if guard.restricts]
    if dropped and mode != "allow":
        raise _other_rank(dropped[0])
    return captured


def _hold_against_given(captured: Captured, asked: shapes.DynamicShapes, trial: Trial) -> None:
    """A program that was captured from other sizes has to be the model at the given ones too.

    Raises:
        CaptureError: if the model itself fails there.
        DynamicShapeError: if the program is not the model there.
    """
    if trial.outcome is Outcome.REFUSED:
        raise CaptureError(
            f"the model fails at the example inputs: {trial.problem}", next_step="pass inputs that the model takes"
        )
    if trial.outcome in (Outcome.AGREES, Outcome.NOTHING):
        return
    if captured.harmful:
        raise _narrower(captured.harmful, asked)
    sizes = ", ".join(f"{axis.text}" for axis in asked.axes)
    raise DynamicShapeError(
        f"at the example inputs {trial.problem}: the model does something else there than at other sizes of {sizes}",
        next_step="give an example in which each dynamic axis has two elements or more",
    )


def _other_rank(guard: Guard) -> DynamicShapeError:
    return DynamicShapeError(
        f"{' and '.join(guard.axes)} may be 1, and then the model drops an axis, which one file cannot: it holds only "
        f"while `{guard.condition}`",
        source=guard.source or None,
        next_step="squeeze axes that are always 1, declare the range (torch.export.Dim(name, min=2)), or pass "
        "guards='allow' to keep the guard in the model's metadata",
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
    united = " give both axes one name," if first.is_equality else ""
    return DynamicShapeError(
        f"{listed} {'was' if len(first.axes) == 1 else 'were'} asked for as dynamic, but the captured program holds "
        f"only while `{first.condition}`{more}",
        source=first.source or None,
        next_step=f"declare the range that you need (torch.export.Dim(name, min=..., max=...)),{united} change the "
        "model at that line, or pass guards='allow' to keep the guard in the model's metadata and in the report",
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
