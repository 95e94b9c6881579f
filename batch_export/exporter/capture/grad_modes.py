"""Whether gradients are recorded decides no value, so a capture need not remember where it was switched.

torch.export keeps each `with torch.no_grad():` of a model as a subgraph of its own, and copies the whole program piece
by piece to cut it there: a sixth of the capture of a deep decoder, whose rotary embedding has one. In here the switches
are left out instead, and with them those that switch autocast off where it is off (`autocast(..., enabled=False)`).

Models are captured and run without recording. One that takes gradients itself, and leaves the recording to whoever
calls it, is captured and run with it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from types import FunctionType
from typing import Any, Final
from weakref import WeakSet

import torch
from torch._export.passes import replace_autocast_with_hop_pass as torchs_of_autocast
from torch._export.passes import replace_set_grad_with_hop_pass as torchs
from torch.utils import _pytree as pytree

_NAME, _NAME_OF_AUTOCAST = "replace_set_grad_with_hop_pass", "replace_autocast_with_hop_pass"
_ENTER, _EXIT = torch.amp.autocast_mode._enter_autocast, torch.amp.autocast_mode._exit_autocast
_MISSING = ("does not require grad", "is made by torch.autograd")
"""What is said where nothing was recorded that a gradient could be taken of, and of results that are still recorded."""
_AS_IT_IS: Final = object()
_WITH_GRADIENTS: WeakSet[Any] = WeakSet()


def is_of_recording(error: BaseException) -> bool:
    """Whether a model may have failed because nothing is recorded, or too much, where its caller would record."""
    return torch.is_grad_enabled() and any(words in str(error) for words in _MISSING)


def record_for(module: torch.nn.Module) -> bool:
    """From now on, gradients are recorded while this model runs, and the function that it was made of.

    Returns:
        Whether they were not before.
    """
    is_new = not _is_recorded(module)
    _WITH_GRADIENTS.add(module)
    if isinstance(function := vars(module).get("_function"), FunctionType):
        _WITH_GRADIENTS.add(function)
    return is_new


def _is_recorded(model: object) -> bool:
    return isinstance(model, (torch.nn.Module, FunctionType)) and model in _WITH_GRADIENTS


@contextlib.contextmanager
def recording(module: Any) -> Iterator[None]:
    """The context in which a model is captured or run: gradients are recorded in its forward, or nowhere."""
    with torch.set_grad_enabled(isinstance(module, FunctionType) and _is_recorded(module)):
        if not isinstance(module, torch.nn.Module) or not _is_recorded(module):
            yield
            return
        own = vars(module).get("forward")
        module.forward = _recorded(module.forward, own)
        try:
            yield
        finally:
            if own is None:
                del module.forward
            else:
                module.forward = own


def _recorded(forward: Any, own: object) -> Any:
    """A forward that records gradients, and gives tensors that are no part of what is recorded."""

    @functools.wraps(forward)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        with torch.enable_grad():
            found = forward(*args, **kwargs)
        return pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, found)

    recorded.instead_of = own  # type: ignore[attr-defined]
    return recorded


def without_recording(attributes: dict[str, object]) -> dict[str, object]:
    """A module's attributes as they are without `recording`."""
    own = getattr(attributes.get("forward"), "instead_of", _AS_IT_IS)
    if own is _AS_IT_IS:
        return attributes
    others = {name: value for name, value in attributes.items() if name != "forward"}
    return others if own is None else {**others, "forward": own}


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
