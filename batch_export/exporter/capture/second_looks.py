"""Decisions by sizes that trials found harmless, looked at once more from the other side.

Arrives: a captured program, and a way to capture the model at other sizes. Leaves: the guards of an `if` behind which
the model does something else after all, whatever the numbers that were tried: there it calls other operators, or asks a
further question (`if t > 8 and b == 1:`) that the given example never came to.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence

import sympy
import torch

from batch_export.errors import CaptureError, DynamicShapeError
from batch_export.exporter.capture import guard_points
from batch_export.exporter.capture.assumptions import check_both_ways
from batch_export.exporter.capture.captured import Captured
from batch_export.exporter.capture.examples import Examples
from batch_export.exporter.capture.guards import Guard
from batch_export.exporter.capture.other_inputs import Inputs
from batch_export.exporter.capture.parsed_files import parsed
from batch_export.exporter.capture.trial import is_fake

_MOST = 3
"""How many guards of one program are looked at once more."""
_POINTS = 4
_FEW = 100
"""Operators of a program up to which it is looked at what a model does at sizes of 1. There it often calls others for
the same numbers (`length > 1` before a causal mask), so that only a further question counts.
"""
_UNSAID = frozenset(
    (
        *(torch.ops.aten.sym_size.int, torch.ops.aten._assert_scalar.default, torch.ops.aten._assert_async.msg),
        torch.ops.aten.sym_constrain_range_for_size.default,
    )
)


Untried = Callable[[torch.export.ExportedProgram], None]
"""What gets a program before its guards are tried."""


class _OtherwiseError(Exception):
    """The model calls other operators."""


def otherwise_beyond(
    captured: Captured,
    examples: Examples,
    sizes: Mapping[str, int],
    capture: Callable[[Inputs, Untried], Captured],
) -> Iterator[Guard]:
    """The guards beyond which the model does something else.

    Args:
        captured: the program.
        examples: other inputs.
        sizes: those of the example, by axis as messages call it.
        capture: captures the model at some inputs by its first way; trials of guards may take far longer than that.
    """
    symbols = captured.symbols
    looked_at = [one for one in captured.guards if one.holds_beyond and _is_asked(one.source)]
    calls = _calls(captured.traced)
    for guard in looked_at[:_MOST] if symbols is not None else ():
        assert symbols is not None
        names = {name: symbols.text(name) for name in symbols.axes}
        near = {name: sizes[text] for name, text in names.items() if text in sizes}
        points = guard_points.against(guard.expression, symbols, near) or ()
        several = [one for one in points if not {0, 1} & {*one.values()}]
        filled = several or [one for one in points if 0 not in one.values()]
        if not several and len(calls) > _FEW:
            continue
        chosen = guard_points.choose(filled, near, _POINTS)
        inputs = next(
            examples.at_some([{names.get(name, name): size for name, size in one.items()} for one in chosen]), None
        )
        if inputs is None:
            continue

        def compared(program: torch.export.ExportedProgram, *, counts: bool = bool(several)) -> None:
            if counts and _calls(program) != calls:
                raise _OtherwiseError

        try:
            other = capture(inputs, compared)
        except (DynamicShapeError, _OtherwiseError):
            yield guard
            continue
        except CaptureError:
            if several:
                yield guard
            continue
        if other.harmful:
            yield guard


def is_right_at_example(
    guard: Guard,
    captured: Captured,
    module: torch.nn.Module,
    given: tuple[tuple[object, ...], Mapping[str, object]],
    sizes: Mapping[str, int],
) -> bool:
    """Whether a guard excludes one size alone, the example's, at which the program gives what the model does.

    So it is with a table that is resized at every other size: the model calls fewer operators there, for the same
    numbers. Nowhere else could they differ, and there both are run with the example's numbers and others.
    """
    expression, symbols = guard.expression, captured.symbols
    if symbols is None or not isinstance(expression, sympy.Ne) or len(expression.free_symbols) != 1:
        return False
    texts = {name: sizes.get(symbols.text(name)) for name in symbols.axes}
    known = {name: size for name, size in texts.items() if size is not None}
    if is_fake(module, *given) or not guard_points.is_false_at(expression, known):
        return False
    try:
        check_both_ways(captured.traced, module, *given, [guard.condition])
    except CaptureError:
        return False
    return True


def _is_asked(place: str) -> bool:
    """Whether a line of the model (`file:line`) compares something itself; others are questions of torch's own."""
    file, _, line = place.rpartition(":")
    return line.isdecimal() and int(line) in _asking(file)


@functools.lru_cache(maxsize=16)
def _asking(file: str) -> frozenset[int]:
    tree = parsed(file)
    kinds = (ast.Compare, ast.BoolOp, ast.Match)
    asked = [one for one in ast.walk(tree) if isinstance(one, kinds)] if tree is not None else []
    tests = [one.test for one in ast.walk(tree) if isinstance(one, (ast.If, ast.IfExp, ast.While))] if tree else []
    return frozenset(line for one in (*asked, *tests) for line in range(one.lineno, (one.end_lineno or one.lineno) + 1))


def _calls(program: torch.export.ExportedProgram) -> Sequence[str]:
    """The operators of a program in their order, without those that work sizes out."""
    called = [one.target for one in program.graph.nodes if one.op == "call_function"]
    return [str(one) for one in called if isinstance(one, torch._ops.OperatorBase) and one not in _UNSAID]
