"""Powers in the code that torch writes of a graph and runs: `-1 ** step` is -(1 ** step) to Python.

Arrives: nothing. Leaves: a context in which the base stands in brackets. Bodies of loops and branches are run by their
code, and captured again by it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest.mock import patch

from torch.fx.graph import magic_methods


@contextlib.contextmanager
def powers_in_brackets() -> Iterator[None]:
    """Within, code of graphs has its powers in brackets.

    NOTE: this changes how torch writes an operator, in a table of its own.
    """
    with patch.dict(magic_methods, pow="({}) ** {}"):
        yield
