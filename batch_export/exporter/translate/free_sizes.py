"""Sizes stay free while a program is translated: what torch decides about them on the way would be nobody's guard.

Arrives: torch's environment of sizes, round a translation or a decomposition. Leaves: the environment as it was, or an
error that names what was fixed. The conditions that a capture added were tried on the model before; those that come
after it never are, so none may make a size a number.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from unittest.mock import patch

import sympy
from torch.fx import traceback as fx_traceback
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.printers import PythonPrinter

from batch_export.errors import DecompositionError
from batch_export.exporter.capture.general_sizes import general_sizes
from batch_export.exporter.capture.guard_points import holds_where_filled
from batch_export.exporter.graph.metadata import innermost_line

_TO_NUMBER = ("guard_int", "guard_float")
_REPLACED = "_replacements_version_counter"
_REFUSED = "_batch_export_refused"


@contextlib.contextmanager
def sizes_stay_free(shape_env: ShapeEnv | None, target: object, given: str = "") -> Iterator[None]:
    """Refuses a decomposition that fixes a symbolic size while it runs: its result would hold for one size only.

    Args:
        shape_env: torch's environment of sizes; None where there is none.
        target: what runs, for the message.
        given: what it is given, as a text. What was refused once is refused at once for the same: torch does not
            decide twice, and nothing would be seen. Empty: nothing is remembered.

    Raises:
        DecompositionError: naming the sizes; torch's knowledge of them is put back as it was.
    """
    if shape_env is None:
        yield
        return
    refused: dict[tuple[str, str], str] = vars(shape_env).setdefault(_REFUSED, {})
    if (str(target), given) in refused:
        raise _holds_once(target, refused[str(target), given])
    guards = len(shape_env.guards)
    with (
        sizes_put_back(shape_env) as fixed,
        numbers_of_sizes() as numbers,
        _true_equalities(shape_env) as true,
        general_sizes(),
    ):
        yield
    equal = [guard.expr for guard in shape_env.guards[guards:] if isinstance(guard.expr, sympy.Eq)]
    listed = (
        {f"{symbol} = {value}" for symbol, value in fixed.items()}
        | {str(one) for one in equal}
        | {str(one) for one in true}
        | {one.text for one in numbers}
    )
    if listed:
        words = ", ".join(sorted(listed))
        if given:
            refused[str(target), given] = words
        raise _holds_once(target, words)


@contextlib.contextmanager
def _true_equalities(shape_env: ShapeEnv) -> Iterator[list[sympy.Eq]]:
    """Equalities of sizes that hold for the example and not for all sizes, and that torch is asked for meanwhile.

    Those that the capture asked for already are no guards any more: tried on the model, where the whole operator is
    right either way, they stay behind as known. A decomposition that asks takes the example's way. What is false only
    where an axis is empty is left out: it is the same way at all other sizes.

    NOTE: by private methods of torch; a torch without them has these unseen.
    """
    seen: list[sympy.Eq] = []
    original = getattr(ShapeEnv, "evaluate_sym_node", None)
    if original is None or not hasattr(shape_env, "_maybe_evaluate_static"):
        yield seen
        return

    def noting(self: ShapeEnv, node: SymNode, *more: object, **options: object) -> Any:
        found = original(self, node, *more, **options)
        if node.pytype is bool:
            true = node.expr if found else sympy.Not(node.expr)
            is_open = isinstance(true, sympy.Eq) and self._maybe_evaluate_static(true, axioms=()) is None
            if is_open and not holds_where_filled(true):
                seen.append(true)
        return found

    with patch.object(ShapeEnv, "evaluate_sym_node", noting):
        yield seen


@contextlib.contextmanager
def sizes_put_back(shape_env: ShapeEnv | None) -> Iterator[dict[sympy.Symbol, sympy.Expr]]:
    """Leaves no size a number that was free before; what else is made of the capture would have it fixed.

    Yields:
        symbol -> number, filled when it ends.
    """
    fixed: dict[sympy.Symbol, sympy.Expr] = {}
    if shape_env is None:
        yield fixed
        return
    before, ranges = dict(shape_env.replacements), dict(shape_env.var_to_range)
    try:
        yield fixed
    finally:
        for symbol, value in list(shape_env.replacements.items()):
            if before.get(symbol) != value and value.is_number:
                fixed[symbol] = shape_env.replacements.pop(symbol)
                if symbol in ranges:  # else torch fixes it again as soon as it looks at its range, which is one number
                    shape_env.var_to_range[symbol] = ranges[symbol]
        if fixed:
            shape_env._update_version_counter()
            if hasattr(shape_env, _REPLACED):  # else every size that was looked at meanwhile stays a number
                setattr(shape_env, _REPLACED, getattr(shape_env, _REPLACED) + 1)


def _holds_once(target: object, listed: str) -> DecompositionError:
    return DecompositionError(
        f"torch's decomposition of {target} holds for one size only ({listed})",
        operator=str(target),
        next_step="make that axis static, or pass custom_translation_table={torch.ops...: function}",
    )


class TakenNumber(NamedTuple):
    """A free size that was taken for a number: both in words (`w // 2 + 1 = 11`), and the model's line."""

    text: str
    source: str | None


@contextlib.contextmanager
def numbers_of_sizes(axis_names: Mapping[str, str] = types.MappingProxyType({})) -> Iterator[list[TakenNumber]]:
    """Free sizes, and fractions made of them, that operators written in C++ take for numbers while it is open.

    NOTE: by private methods of torch; a torch without it has these sizes unseen.

    Args:
        axis_names: torch's symbol -> axis name.
    """
    seen: list[TakenNumber] = []

    def noting(original: Callable[..., Any]) -> Callable[..., Any]:
        def noted(self: SymNode, *place: object) -> Any:
            size = self.expr if self.shape_env is None else self.shape_env.simplify(self.expr)  # later it is a number
            number = original(self, *place)
            if not size.is_number:
                names = {one: sympy.Symbol(axis_names.get(str(one), str(one))) for one in size.free_symbols}
                trace = fx_traceback.get_current_meta().get("stack_trace")
                text = f"{PythonPrinter().doprint(size.xreplace(names))} = {number}"
                seen.append(TakenNumber(text, innermost_line(trace) if trace else None))
            return number

        return noted

    with contextlib.ExitStack() as stack:
        for name in _TO_NUMBER:
            if (original := getattr(SymNode, name, None)) is not None:
                stack.enter_context(patch.object(SymNode, name, noting(original)))
        yield seen
