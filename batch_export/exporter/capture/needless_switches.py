"""Switches of modes in a model that decide nothing: of the grad mode, and of autocast where it is off already.

torch.export keeps each `with torch.no_grad():` of a model as a subgraph of its own, and copies the whole program piece
by piece to cut it there: a sixth of the capture of a deep decoder, whose rotary embedding has one. Such switches
are left out in here, and so are those that switch autocast off where nothing has switched it on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch._export.passes import replace_autocast_with_hop_pass as torchs_of_autocast
from torch._export.passes import replace_set_grad_with_hop_pass as torchs

_NAME, _NAME_OF_AUTOCAST = "replace_set_grad_with_hop_pass", "replace_autocast_with_hop_pass"
_ENTER, _EXIT = torch.amp.autocast_mode._enter_autocast, torch.amp.autocast_mode._exit_autocast


@contextlib.contextmanager
def left_out() -> Iterator[None]:
    """Context in which torch.export drops switches that decide nothing; where torch has no such passes, none."""
    theirs, of_autocast = getattr(torchs, _NAME, None), getattr(torchs_of_autocast, _NAME_OF_AUTOCAST, None)
    if theirs is None or of_autocast is None:
        yield
        return

    def without_needless(program: torch.fx.GraphModule, signature: object) -> object:
        is_on = any(map(torch.is_autocast_enabled, ("cpu", "cuda")))  # where export() itself was called
        for module in () if is_on else program.modules():
            if isinstance(module, torch.fx.GraphModule):
                _drop_switches_off(module)
        return of_autocast(program, signature)

    setattr(torchs, _NAME, _without_switches)
    setattr(torchs_of_autocast, _NAME_OF_AUTOCAST, without_needless)
    try:
        yield
    finally:
        setattr(torchs, _NAME, theirs)
        setattr(torchs_of_autocast, _NAME_OF_AUTOCAST, of_autocast)


def _drop_switches_off(module: torch.fx.GraphModule) -> None:
    """Takes out what switches autocast off in a graph in which nothing around has switched it on."""
    on: set[torch.fx.Node] = set()
    needless: list[torch.fx.Node] = []
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target is _ENTER:
            enabled = node.args[2] if len(node.args) > 2 else node.kwargs.get("enabled", True)
            if enabled is not False:
                on.add(node)
            elif not on:
                needless.append(node)
        elif node.op == "call_function" and node.target is _EXIT:
            entered = node.args[0]
            assert isinstance(entered, torch.fx.Node)
            on.discard(entered)
            if entered in needless:
                needless.append(node)
    for node in reversed(needless):
        module.graph.erase_node(node)
    if needless:
        module.recompile()


def _without_switches(program: torch.fx.GraphModule, signature: object) -> tuple[torch.fx.GraphModule, object]:
    for module in program.modules():
        if isinstance(module, torch.fx.GraphModule):
            switches = module.graph.find_nodes(op="call_function", target=torch._C._set_grad_enabled)
            for switch in switches:
                module.graph.erase_node(switch)
            if switches:
                module.recompile()
    return program, signature
