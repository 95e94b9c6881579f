"""Capture: a module and example inputs -> an exported program, by strategies that are tried in order.

Arrives: a module, callable, scripted module or exported program, example inputs and dynamic shapes. Leaves: the
exported program, which strategy made it, and what became of each one tried before. Nothing of ONNX is consulted here,
so one capture serves every opset.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from batch_export.calling import caches, dataclasses_of_tensors, exported_inputs
from batch_export.calling.fast_paths import without_fast_paths
from batch_export.calling.tree_paths import leaves_with_paths
from batch_export.errors import CaptureError, DynamicShapeError
from batch_export.exporter.capture import attributes, fixed_axes, refusals, tied_axes, torchscript
from batch_export.exporter.capture import dynamic_shapes as shapes
from batch_export.exporter.capture.assigned_buffers import lost_assignments
from batch_export.exporter.capture.begun_anew import each_anew
from batch_export.exporter.capture.blocks import by_blocks
from batch_export.exporter.capture.captured import Attempt, Captured, warn
from batch_export.exporter.capture.code_state import functions_of
from batch_export.exporter.capture.course import Course
from batch_export.exporter.capture.drawn_numbers import drawn_numbers
from batch_export.exporter.capture.dropped_caches import caches_known
from batch_export.exporter.capture.examples import Examples
from batch_export.exporter.capture.export_switch import in_onnx_export
from batch_export.exporter.capture.finished import GUARD_MODES, GuardMode, finished
from batch_export.exporter.capture.forced_decisions import decisions_returned
from batch_export.exporter.capture.from_example import Request
from batch_export.exporter.capture.guard_sources import keep_lines_of
from batch_export.exporter.capture.guards import collect, symbols_of
from batch_export.exporter.capture.kept_settings import settings_kept
from batch_export.exporter.capture.kept_state import state_kept
from batch_export.exporter.capture.layout_questions import layout_questions
from batch_export.exporter.capture.marked_inputs import asked_by_marks, marks_put_back
from batch_export.exporter.capture.outside_numbers import outside_numbers, read_outside
from batch_export.exporter.capture.own_attributes import modules_of
from batch_export.exporter.capture.rounded_decisions import rounded_decisions
from batch_export.exporter.capture.rounded_numbers import rounded_numbers
from batch_export.exporter.capture.script_methods import script_methods
from batch_export.exporter.capture.seeded_numbers import other_seeds
from batch_export.exporter.capture.settled_attributes import unsettled
from batch_export.exporter.capture.strategies import ASSUMING, BOTH_WAYS, NON_STRICT, STRATEGIES
from batch_export.exporter.capture.traced_questions import traced_questions
from batch_export.exporter.capture.turns import in_turn
from batch_export.exporter.capture.unfit_outputs import outputs_refused
from batch_export.exporter.capture.written_constants import written_tensors
from batch_export.exporter.capture.written_powers import powers_in_brackets
from batch_export.exporter.graph.collector import young_only


class _CallableModule(torch.nn.Module):
    """A plain function as a module, with the function's own parameter names."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self._function = function
        self.forward = function  # type: ignore[method-assign]
        keep_lines_of(function)

    def forward(self, *args: object, **kwargs: object) -> object:  # replaced in __init__; kept for type checkers
        return self._function(*args, **kwargs)


def _with_signature(function: Callable[..., object]) -> Callable[..., object]:
    """A function as it is, and an object that is called as the method which that is; one of torch's own, of which
    Python knows no parameters, as one of any inputs.
    """
    if isinstance(function, functools.partial):
        return functools.partial(_with_signature(function.func), *function.args, **function.keywords)
    own = getattr(type(function), "__call__", None)  # noqa: B004
    if isinstance(own, FunctionType):
        return own.__get__(function)
    try:
        inspect.signature(function)
    except ValueError:

        def forward(*args: object, **kwargs: object) -> object:
            return function(*args, **kwargs)

        return forward
    return function


def as_module(model: object) -> torch.nn.Module:
    """A module as it is; a function or other callable wrapped into one.

    Raises:
        CaptureError: for anything that cannot be called.
    """
    if isinstance(model, torch.nn.Module):
        compiled = isinstance(model, torch._dynamo.eval_frame.OptimizedModule)  # is captured as it was written
        return model._orig_mod if compiled else model  # type: ignore[return-value]
    if isinstance(model, type) and issubclass(model, torch.nn.Module):
        raise CaptureError(
            f"the model is the class {model.__name__}, and no module",
            next_step=f"pass an instance: {model.__name__}(...)",
        )
    if callable(model):
        return _CallableModule(_with_signature(model))
    raise CaptureError(
        f"the model is a {type(model).__name__}",
        next_step="pass a torch.nn.Module, a function, a torch.export.ExportedProgram or a scripted module",
    )


def named_inputs(model: object, args: tuple[object, ...], kwargs: dict[str, object]) -> dict[str, object]:
    """The example inputs by parameter name, whatever kind of model it is."""
    caches.register()
    dataclasses_of_tensors.register((args, kwargs))
    if isinstance(model, torch.export.ExportedProgram):
        module: torch.nn.Module = model.module(check_guards=False)
    elif torchscript.is_scripted(model):
        module = torchscript.as_eager(model, args, kwargs)
    else:
        module = as_module(model)
    _check_call(module, args, kwargs)
    return shapes.bind_names(module, args, kwargs)


@in_turn
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
    # The program is held against the model as the export sees it, whatever that asks `torch.onnx.is_in_onnx_export()`.
    with (
        _outside_of_inference(model),
        in_onnx_export(),
        settings_kept(),
        state_kept(model, args, kwargs),
        without_fast_paths(),
        powers_in_brackets(),
    ):
        return _capture(model, args, kwargs, dynamic_shapes, guards, allow_assumptions, capture_blocks, strategies)


def _outside_of_inference(model: Any) -> contextlib.AbstractContextManager[None]:
    """Leaves torch's inference mode, in which it cannot capture a branch; not where only within it a model can write to
    its state.
    """
    own = [*model.parameters(), *model.buffers()] if isinstance(model, torch.nn.Module) else []
    made_within = any(not torch.nn.parameter.is_lazy(one) and one.is_inference() for one in own)
    return contextlib.nullcontext() if made_within else torch.inference_mode(False)


def _capture(
    model: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    guards: GuardMode,
    allow_assumptions: bool | None,
    capture_blocks: bool,
    strategies: Sequence[tuple[str, Callable[..., Any]]],
) -> Captured:
    caches.register()
    arguments, keywords = tuple(args), dict(kwargs or {})
    dataclasses_of_tensors.register((arguments, keywords))
    allow_assumptions = guards == "allow" if allow_assumptions is None else allow_assumptions
    if isinstance(model, torch.export.ExportedProgram):
        return _as_it_is(model, arguments, keywords, dynamic_shapes, guards)
    if torchscript.is_scripted(model):
        begun = time.perf_counter()
        eager = torchscript.as_eager(model, arguments, keywords)
        placed, named = torchscript.as_called(model, arguments, keywords)
        if isinstance(dynamic_shapes, (tuple, list)):
            dynamic_shapes = (*dynamic_shapes, *[None] * (len(placed) + len(named) - len(dynamic_shapes)))
        taken = time.perf_counter() - begun
        captured = capture(
            eager,
            placed,
            named,
            dynamic_shapes=dynamic_shapes,
            guards=guards,
            capture_blocks=capture_blocks,
            strategies=[one for one in strategies if one[0] in (NON_STRICT, BOTH_WAYS)],
        )
        captured.attempts[0] = Attempt("TorchScript graph", taken + captured.attempts[0].seconds)
        return captured
    module = as_module(model)
    _check_call(module, arguments, keywords)
    given = arguments, _in_forward_order(module, keywords)
    arguments, keywords = _one_tensor_each(module, *given)
    dynamic_shapes = asked_by_marks(given, (arguments, keywords), dynamic_shapes)
    asked = shapes.canonical(dynamic_shapes, module, arguments, keywords)
    shares = {NON_STRICT} if capture_blocks else set()
    strategies = [(name, by_blocks(one) if name in shares else each_anew(one)) for name, one in strategies]
    request = Request(module, (arguments, keywords), asked, guards, allow_assumptions)
    course = Course(request, tuple(strategies))
    wanted, positions = list(asked.axes), dict(asked.positions)
    functions = functions_of(module)
    with (
        dataclasses_of_tensors.outputs_of(module),
        outputs_refused(module),
        decisions_returned(module),
        young_only(),
        other_seeds(module) as generators,
        contextlib.nullcontext() if asked.axes else script_methods(module),
        attributes.watching(module, functions) as changed,
        caches_known(module, functions),
        marks_put_back(arguments, keywords),
        lost_assignments() as lost,
        drawn_numbers() as drawn,
        outside_numbers() as outside,
        rounded_decisions() as rounded,
        rounded_numbers(),
        traced_questions() as questions,
        layout_questions() as layouts,
    ):
        captured = course.from_examples()
        if rounded and asked.axes and guards != "allow":
            raise refusals.rounded_otherwise(rounded[0])
        sources = fixed_axes.lines(captured, wanted, asked.aliases)
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
    written = attributes.holders(module, written_tensors(captured.traced))
    plain = [one for one in dict.fromkeys(changed) if one not in generators and one not in written]
    if plain:
        examples = Examples(asked, module, (arguments, keywords))
        plain = unsettled(plain, module, (arguments, keywords), examples.others(), has_axes=bool(asked.axes))
    captured.changed_attributes = [*plain, *dict.fromkeys(one for one in written if one not in generators)]
    captured.seeded = [*captured.seeded, *(f"of the generator {one}" for one in changed if one in generators)]
    captured.lost_assignments = list(dict.fromkeys(lost))
    captured.drawn = [f"{one} (at {outside[one]})" if one in outside else one for one in sorted(drawn)]
    captured.read = read_outside(outside, module, arguments, keywords)
    captured.asked_if_captured = dict(questions)
    captured.asked_for_layout = dict(layouts)
    captured.tied = tied_axes.told(captured, asked, module, (arguments, keywords))
    captured.made_numbers = fixed_axes.told(captured, wanted, positions, sources, module, (arguments, keywords))
    captured.traced.example_inputs = (arguments, keywords)
    warn(captured)
    return captured


def _as_it_is(
    program: torch.export.ExportedProgram,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    dynamic_shapes: object,
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
    return finished(program, asked, attempts, guards)


def _one_tensor_each(
    module: torch.nn.Module, args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Inputs none of which is another one or a weight: torch takes one object for one tensor in every call.

    Nor is one an inference tensor, to which nothing can be written outside of that mode.
    """
    seen: set[int] = set()
    for _, one in modules_of(module):
        seen.update(map(id, (*one._parameters.values(), *one._buffers.values(), *vars(one).values())))

    def own(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) in seen or tensor.is_inference():
            return tensor.detach().clone()
        seen.add(id(tensor))
        return tensor

    inputs: tuple[tuple[object, ...], dict[str, object]] = pytree.tree_map_only(torch.Tensor, own, (args, kwargs))
    return inputs


def _in_forward_order(module: torch.nn.Module, kwargs: dict[str, object]) -> dict[str, object]:
    """torch.export names inputs by forward's signature and orders them as given: only in this order do both agree."""
    parameters = inspect.signature(module.forward).parameters
    return {name: kwargs[name] for name in [*parameters, *kwargs] if name in kwargs}


def in_forward_order(
    model: object, args: tuple[object, ...], kwargs: dict[str, object], names: Sequence[str] | None
) -> tuple[dict[str, object], Sequence[str] | None]:
    """Inputs by keyword and names of inputs, given in the order of a call, in that of the file, which is forward's.

    Args:
        model: a module or a callable; any other takes its inputs by an order of its own.
        args, kwargs: example inputs.
        names: of tensors among them, in the order of `args`, then of `kwargs`; the last ones may be left out.
    """
    caches.register()
    dataclasses_of_tensors.register((args, kwargs))
    is_program = isinstance(model, torch.export.ExportedProgram)
    if is_program or torchscript.is_scripted(model) or not callable(model):
        return kwargs, names
    ordered = _in_forward_order(as_module(model), kwargs)
    is_named = names and not isinstance(names, str) and len(names) > len(pytree.tree_leaves(args))
    if not is_named or list(ordered) == list(kwargs):
        return ordered, names
    return ordered, _names_in_order(args, kwargs, ordered, names or ())


def _names_in_order(
    args: tuple[object, ...], kwargs: dict[str, object], ordered: Iterable[str], names: Sequence[str]
) -> Sequence[str]:
    own = {name: _names_of(name, value) for name, value in kwargs.items()}
    left = list(names[len(_names_of("", args)) :])
    given = {}
    for name, one in own.items():
        given[name] = [*left[: len(one)], *one[len(left) :]]
        left = left[len(one) :]
    return [*names[: len(_names_of("", args))], *(one for name in ordered for one in given[name]), *left]


def _names_of(name: str, value: object) -> list[str]:
    """What torch calls the tensors of an input."""
    paths = [path for path, leaf in leaves_with_paths(value) if isinstance(leaf, torch.Tensor)]
    return ["_".join([name, *(str(getattr(key, "key", getattr(key, "idx", key))) for key in path)]) for path in paths]


def _check_call(module: torch.nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
    signature = inspect.signature(module.forward)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise CaptureError(
            f"the example inputs do not fit forward({', '.join(signature.parameters)}): {error}",
            next_step="pass args and kwargs as the model is called",
        ) from error
    for name, value in shapes.bind_names(module, args, kwargs).items():
        if any(isinstance(leaf, np.ndarray) for leaf in pytree.tree_leaves(value)):
            raise CaptureError(
                f"the input {name} is a numpy array, or has one in it, which would be no input of the file",
                next_step="pass a tensor: torch.from_numpy(array)",
            )
