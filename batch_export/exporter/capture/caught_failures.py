"""Failures that depend on data and that forward catches: `try: assert x.sum() > 0`, `except AssertionError: ...`.

Arrives: a capture that is about to run. Leaves: the lines of assertions and of operators that fail at some data
(`torch.linalg.cholesky`) which are run within a `try` whose handler goes on. torch captures the way on which nothing
fails, and says so nowhere; a file has no assertions. What depends on sizes is a guard, and none of this.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import linecache
import re
from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols

from batch_export.exporter.capture.guard_sources import is_users, users_frames

_ASSERTIONS = frozenset({torch.ops.aten._assert_async.default, torch.ops.aten._assert_async.msg})
_CHECKS = frozenset({torch.ops.aten._linalg_check_errors.default})
"""What the operators of linear algebra that fail at some matrices end with."""
_BY_ASSERTION = frozenset({"AssertionError", "RuntimeError", "Exception", "BaseException"})
_BY_MATRICES = frozenset({"LinAlgError", "_LinAlgError", "RuntimeError", "Exception", "BaseException"})
_SELECT = torch.ops.aten.select.int
_SCALAR = torch.ops.aten.scalar_tensor.default
_LOOKUPS = frozenset({torch.ops.aten.index.Tensor, torch.ops.aten.embedding.default, _SELECT})
_BY_LOOKUP = frozenset({"IndexError", "LookupError"})
"""Whoever names these expects them; of others a file fails where the model goes on, which is no wrong number."""
_BY_NUMBER = frozenset(
    {"ZeroDivisionError", "ArithmeticError", "OverflowError", "ValueError", "Exception", "BaseException"}
)
_OF_NUMBERS = (
    *("truediv", "float_truediv", "int_truediv", "floordiv", "int_floordiv", "mod", "pow", "float_pow"),
    *("pow_by_natural", "sym_sqrt", "sym_log2"),
)
"""Methods of torch's symbolic numbers for what Python raises an error for at some numbers: `1 / 0.0`."""
_OF_FRACTIONS = ("trunc", "floor", "ceil", "round")
"""The same of fractions alone: `int(nan)`."""
_SUPPRESS = "suppress"
_CATCHES = re.compile(r"^\s*try\s*:|\bsuppress\(", re.MULTILINE)
_FRAME = re.compile(r'^\s*File "(.+)", line (\d+)', re.MULTILINE)

_Try = ast.Try | ast.TryStar | ast.With | ast.AsyncWith


class CaughtFailureError(RuntimeError):
    """What forward does where something fails at some data is not in the program.

    Attributes:
        source: `file:line` in the model.
    """

    def __init__(self, source: str) -> None:
        super().__init__("whether something fails here depends on the data, and forward catches that and goes on")
        self.source = source


@contextlib.contextmanager
def caught_failures() -> Iterator[None]:
    """Within, what is captured of a model is looked through for such failures.

    NOTE: this wraps private methods of torch's fake tensors and sizes, which see strict and other captures alike.

    Raises:
        CaughtFailureError: when it ends, for the first of them.
    """
    found: list[str] = []
    dispatch: Any = FakeTensorMode.dispatch
    log_guard: Any = getattr(ShapeEnv, "_log_guard", None)

    def dispatched(self: FakeTensorMode, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _ASSERTIONS:
            found.extend(_caught(_BY_ASSERTION, list(users_frames())))
        elif func in _CHECKS:
            found.extend(_caught(_BY_MATRICES, list(users_frames())))
        elif func is _SCALAR and _is_data(getattr(args[0], "node", None)):  # a function of `math`
            found.extend(_caught(_BY_NUMBER, list(users_frames())))
        elif func in _LOOKUPS and not (func is _SELECT and isinstance(args[2], int)):
            found.extend(_caught(_BY_LOOKUP, list(users_frames())))
        return dispatch(self, func, types, args, kwargs or {})

    def logged(self: ShapeEnv, prefix: str, condition: Any, *args: Any, **kwargs: Any) -> Any:
        if prefix == "runtime_assert" and free_unbacked_symbols(condition):
            found.extend(_caught(_BY_ASSERTION, list(users_frames())))
        return log_guard(self, prefix, condition, *args, **kwargs)

    def computed(name: str) -> Any:
        original = getattr(SymNode, name)

        def compute(self: SymNode, *others: Any) -> Any:
            may_fail = self.pytype is float or name not in _OF_FRACTIONS
            if may_fail and any(_is_data(one) for one in (self, *others)):
                found.extend(_caught(_BY_NUMBER, list(users_frames())))
            return original(self, *others)

        return compute

    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.object(FakeTensorMode, "dispatch", dispatched))
        for name in filter(functools.partial(hasattr, SymNode), (*_OF_NUMBERS, *_OF_FRACTIONS)):
            stack.enter_context(patch.object(SymNode, name, computed(name)))
        if log_guard is not None:
            stack.enter_context(patch.object(ShapeEnv, "_log_guard", logged))
        yield
    if found:
        raise CaughtFailureError(found[0])


def _is_data(node: object) -> bool:
    """Whether a number is one of the data, whose value nobody knows during a capture."""
    return isinstance(node, SymNode) and node._hint is None and bool(free_unbacked_symbols(node.expr))


def refuse_caught_assertions(program: torch.export.ExportedProgram) -> None:
    """Looks at the assertions of a program: those that dynamo writes into one are never run without it.

    Raises:
        CaughtFailureError: forward catches one of them.
    """
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            if node.target in _ASSERTIONS:
                lines = _FRAME.findall(node.meta.get("stack_trace") or "")
                frames = [(file, int(line)) for file, line in reversed(lines) if is_users(file)]
                for source in _caught(_BY_ASSERTION, frames):
                    raise CaughtFailureError(source)


def _caught(kinds: frozenset[str], frames: Sequence[tuple[str, int]]) -> Iterator[str]:
    """The innermost line of the model, if a handler of one of these kinds stands round it or round a call before."""
    if any(_handled(file, line, kinds) for file, line in frames):
        yield ":".join(map(str, frames[0]))


@functools.lru_cache(maxsize=64)
def _parsed(file: str) -> ast.AST | None:
    """A source file, if anything is caught in it at all."""
    text = "".join(linecache.getlines(file))
    if not _CATCHES.search(text):
        return None
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def is_caught(frames: Sequence[tuple[str, int]]) -> bool:
    """Whether some error, of whatever kind, that was raised at the first of these lines would be caught."""
    return any(_handled(file, line, None) for file, line in frames)


def _handled(file: str, line: int, kinds: frozenset[str] | None) -> bool:
    parsed = _parsed(file)
    around: list[ast.AST] = [] if parsed is None else [parsed]
    tries: list[_Try] = []
    while around:
        node = around.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            tries = []
        if isinstance(node, _Try) and any(_covers(one, line) for one in node.body):
            tries.append(node)
        around = [one for one in ast.iter_child_nodes(node) if _covers(one, line)]
    return any(_goes_on(one, kinds) for one in tries)


def _covers(node: ast.AST, line: int) -> bool:
    first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
    if first is None:  # a handler's and a context's parts have lines, and what holds them may not
        return any(_covers(one, line) for one in ast.iter_child_nodes(node))
    return bool(first <= line <= (last or first))


def _goes_on(node: _Try, kinds: frozenset[str] | None) -> bool:
    """Whether something of these kinds (None: of any) is caught, and not only told otherwise."""
    if isinstance(node, (ast.With, ast.AsyncWith)):
        calls = [one.context_expr for one in node.items if isinstance(one.context_expr, ast.Call)]
        return any(_name(one.func) == _SUPPRESS and (kinds is None or _names(one.args) & kinds) for one in calls)
    for handler in node.handlers:
        if handler.type is None or kinds is None or _names([handler.type]) & kinds:
            return not isinstance(handler.body[-1], ast.Raise)
    return False


def _names(kinds: list[ast.expr]) -> set[str]:
    return {_name(one) for kind in kinds for one in (kind.elts if isinstance(kind, ast.Tuple) else [kind])}


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
