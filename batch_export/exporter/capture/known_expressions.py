"""torch's symbolic numbers tell their expression without walking through it.

Nothing arrives. Leaves: a context in which a symbolic number whose expression was not replaced since it was last asked
gives what it gave. torch (2.13) asks sympy first whether the expression is a number, at every access, and sympy goes
through all of it to tell: of sizes behind many strided layers that is a sixth of a capture.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torch.fx.experimental.sym_node import SymNode

_NAME = "expr"


@contextlib.contextmanager
def known_expressions() -> Iterator[None]:
    """Within, what torch has kept of an expression is asked before the expression itself.

    NOTE: this replaces a property of torch's, which does the same in another order; it may go with that order.
    """
    own: Any = vars(SymNode).get(_NAME)
    if not isinstance(own, property) or own.fget is None:
        yield
        return
    setattr(SymNode, _NAME, property(_quick(own.fget)))
    try:
        yield
    finally:
        setattr(SymNode, _NAME, own)


def _quick(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def expression(node: Any) -> Any:
        version = getattr(node.shape_env, "_replacements_version_counter", None)
        if version == 0:
            return node._expr
        kept = getattr(node, "_expr_cache", None)
        if kept is not None and version is not None and getattr(node, "_expr_ver", None) == version:
            return kept
        return original(node)

    return expression
