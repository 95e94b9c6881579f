"""`torch._assert` on what data say: an operator that checks when the model runs, not a decision at capture.

Nothing arrives. Leaves: a context in which such an assertion is captured as `aten::_assert_async`, which has no place
in a file and is left out of it; and captured programs without any, as their files are. Assertions on Python's own
values, sizes among them, are checked as they are written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


@contextlib.contextmanager
def assertions_on_data() -> Iterator[None]:
    """Within, `torch._assert` of a tensor decides nothing."""
    own: Any = torch._assert

    def checked(condition: Any, message: str) -> None:
        if isinstance(condition, torch.Tensor):
            torch.ops.aten._assert_async.msg(condition, message)
        else:
            own(condition, message)

    torch._assert = checked
    try:
        yield
    finally:
        torch._assert = own


def without_assertions(program: torch.nn.Module) -> torch.nn.Module:
    """Returns the program as the file is, which asserts nothing; it is changed in place.

    torch's bounds of a size by data (`u0 >= 2`) may be those of a size of the example that it was compared with. A
    bound that matters shows in what the program gives.
    """
    for part in program.modules():  # branches and rounds among them
        if isinstance(part, torch.fx.GraphModule):
            for node in reversed(list(part.graph.nodes)):
                if node.target is torch.ops.aten._assert_scalar.default and not node.users:
                    part.graph.erase_node(node)
            part.recompile()
    return program
