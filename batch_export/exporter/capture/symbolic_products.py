"""During capture, sums and products of three and more sizes are written as operators of two.

torch (2.13) puts a size that it has only as an expression (`b*h*t`) back into the graph piece by piece, and calls the
operator of a product or a sum with all of its factors at once, which takes two. May go when torch folds them itself.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import sympy
from torch.fx.experimental import proxy_tensor

_NAMES = ("_build_proxy_for_sym_expr", "_sympy_handlers", "_sym_register")


@contextlib.contextmanager
def symbolic_products() -> Iterator[None]:
    """While open, torch writes such expressions; where torch has no such functions, nothing changes."""
    build, handlers, register = (getattr(proxy_tensor, name, None) for name in _NAMES)
    if build is None or handlers is None or register is None:
        yield
        return

    def in_pairs(tracer: Any, expression: Any, out: Any = None) -> Any:
        is_long = isinstance(expression, (sympy.Add, sympy.Mul)) and len(expression.args) > 2
        operator = handlers().get(expression.func) if is_long else None
        if operator is None or expression in tracer.sympy_expr_tracker:
            return build(tracer, expression, out)
        values = [in_pairs(tracer, part) for part in expression.args]
        if any(value is None for value in values):
            return None
        front = functools.reduce(operator, values[:-1])
        if out is None:
            return operator(front, values[-1])
        register(tracer, operator, (front, values[-1]), out)
        return out

    setattr(proxy_tensor, _NAMES[0], in_pairs)
    try:
        yield
    finally:
        setattr(proxy_tensor, _NAMES[0], build)
