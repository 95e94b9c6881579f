"""Whether gradients are recorded decides no value, so a capture need not remember where it was switched.

torch.export keeps each `with torch.no_grad():` of a model as a subgraph of its own, and copies the whole program piece
by piece to cut it there: a sixth of the capture of a deep decoder, whose rotary embedding has one. In here the switches
are left out instead.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch._export.passes import replace_set_grad_with_hop_pass as torchs

_NAME = "replace_set_grad_with_hop_pass"


@contextlib.contextmanager
def left_out() -> Iterator[None]:
    """Context in which torch.export drops switches of the grad mode; where torch has no such pass, nothing changes."""
    theirs = getattr(torchs, _NAME, None)
    if theirs is None:
        yield
        return
    setattr(torchs, _NAME, _without_switches)
    try:
        yield
    finally:
        setattr(torchs, _NAME, theirs)


def _without_switches(program: torch.fx.GraphModule, signature: object) -> tuple[torch.fx.GraphModule, object]:
    for module in program.modules():
        if isinstance(module, torch.fx.GraphModule):
            switches = module.graph.find_nodes(op="call_function", target=torch._C._set_grad_enabled)
            for switch in switches:
                module.graph.erase_node(switch)
            if switches:
                module.recompile()
    return program, signature
