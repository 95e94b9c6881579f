"""During capture, `associative_scan` over an axis of free size is a scan from step to step.

Nothing arrives. Leaves: a context in which torch's generic associative scan, which halves an axis until nothing is left
and so belongs to one size, combines the elements of a free axis one after the other instead. That is what the scan
means, for a function that is associative; over an axis of known size torch's own form stays.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Sequence

import torch
from torch._higher_order_ops.scan import scan
from torch.utils import _pytree as pytree

_MODULE = importlib.import_module("torch._higher_order_ops.associative_scan")  # a function of that name hides it
_OWN = "generic_associative_scan"

Leaves = list[torch.Tensor]


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """A copy whose memory is in order: a carry has to look alike in every step."""
    return tensor.clone(memory_format=torch.contiguous_format)


def _step_by_step(
    operator: Callable[..., object], leaves: Sequence[torch.Tensor], additional: Sequence[object]
) -> Leaves:
    """Combines along axis 0; `operator` takes two groups of leaves with a batch in front, and gives one."""
    initial = [_plain(leaf.narrow(0, 0, 1)) for leaf in leaves]  # of which the first step takes nothing

    def combine(carry: Leaves, one: Leaves) -> tuple[Leaves, Leaves]:
        is_first, *elements = (leaf.unsqueeze(0) for leaf in one)
        combined = pytree.tree_leaves(operator(*carry, *elements, *additional))
        made = [
            torch.where(is_first.view([1] * leaf.dim()), element, leaf)
            for element, leaf in zip(elements, combined, strict=True)
        ]
        return [_plain(leaf) for leaf in made], [_plain(leaf.squeeze(0)) for leaf in made]

    starts = torch.arange(leaves[0].shape[0], device=leaves[0].device) == 0
    _, scanned = scan(combine, initial, [starts, *(_plain(leaf) for leaf in leaves)], dim=0)
    return list(scanned)


@contextlib.contextmanager
def free_scans() -> Iterator[None]:
    """Within, associative scans take axes of free size.

    NOTE: this replaces a function of torch's while a model is captured; it may go once torch's takes a free size.
    """
    own: Callable[..., Leaves] = getattr(_MODULE, _OWN)

    def either(
        operator: Callable[..., object],
        leaves: Sequence[torch.Tensor],
        dim: int = 0,
        additional_inputs: Sequence[object] = (),
    ) -> Leaves:
        length: object = leaves[0].shape[0]
        if dim or not isinstance(length, torch.SymInt):
            return own(operator, leaves, dim, additional_inputs)
        return _step_by_step(operator, leaves, additional_inputs)

    setattr(_MODULE, _OWN, either)
    try:
        yield
    finally:
        setattr(_MODULE, _OWN, own)
