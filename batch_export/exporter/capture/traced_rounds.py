"""Rounds of a loop as torch's scan without dynamo, which takes no attribute that a round gives a module.

Arrives: a round as a function of tensors, what the first one begins with, and what is read along the first axis. Leaves:
what scan leaves. What a round reads from outside of the loop becomes an input of the operator. A round has to give the
same operators whenever it is traced, or else something in it goes on that is no tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.scan import scan, scan_op
from torch._higher_order_ops.utils import reenter_make_fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule
from torch.fx.experimental import proxy_tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from batch_export.exporter.capture.begun_numbers import writes_so_far
from batch_export.exporter.capture.loop_pieces import SizeByDataError

Combine = Callable[[list[Tensor], list[Tensor]], tuple[Sequence[Tensor], Sequence[Tensor]]]


class _Outside(TorchFunctionMode):
    """Notes the tensors that functions of torch get and that none of them has made.

    Args:
        known: tensors that are given.
    """

    def __init__(self, known: Iterable[Tensor]) -> None:
        super().__init__()
        self._known = {id(one): one for one in known}
        self.found: list[tuple[Tensor, int]] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        for one in pytree.tree_leaves((args, given)):
            if isinstance(one, Tensor) and id(one) not in self._known:
                self._known[id(one)] = one
                self.found.append((one, writes_so_far(one)))
        made = func(*args, **given)
        self._known.update({id(one): one for one in pytree.tree_leaves(made) if isinstance(one, Tensor)})
        return made

    @property
    def is_written(self) -> bool:
        """Whether one of them was written to."""
        return any(writes_so_far(one) != count for one, count in self.found)


class _Given(TorchFunctionMode):
    """Gives functions of torch other tensors in the place of some.

    Args:
        these: for which others are given.
        others: these.
    """

    def __init__(self, these: Sequence[Tensor], others: Sequence[Tensor]) -> None:
        super().__init__()
        self._others = {id(one): other for one, other in zip(these, others, strict=True)}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = pytree.tree_map(
            lambda one: self._others.get(id(one), one) if isinstance(one, Tensor) else one, (args, dict(kwargs or {}))
        )
        return func(*given[0], **given[1])


def traced(
    combine: Combine, begun: Sequence[Tensor], rows: Sequence[Tensor]
) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """What goes on behind the last round, and what each round gives besides.

    Args:
        combine: a round.
        begun: what the first one begins with.
        rows: what is read, along the first axis.

    Raises:
        SizeByDataError: a round changes what is no tensor, or a tensor from outside of the loop.
    """
    if proxy_tensor._CURRENT_MAKE_FX_TRACER is None:  # a run on tensors without content, of which nothing is kept
        return _plainly(combine, begun, rows)
    state, elements = [one.clone() for one in begun], [one.select(0, 0).clone() for one in rows]
    with _Outside([*state, *elements]) as outside:
        combine(state, elements)
    if outside.is_written:
        raise SizeByDataError("a round writes to a tensor from outside of the loop")
    others = [one for one, _ in outside.found]
    first, behind = len(begun), len(begun) + len(rows)

    def flat(*given: Tensor) -> list[Tensor]:
        with _Given(others, given[behind:]):
            last, made = combine(list(given[:first]), list(given[first:behind]))
        return [*last, *made]

    graphs = [_traced(flat, [*state, *elements, *others]) for _ in range(2)]
    if len({_said(one) for one in graphs}) > 1:
        raise SizeByDataError("rounds differ in more than what tensors hold")
    if any(isinstance(one, FakeTensor) for one in _constants(graphs[0]).values()):
        raise SizeByDataError("a round reads a tensor by a way that nothing here follows")
    found = scan_op(flat, list(begun), list(rows), tuple(others))
    return found[:first], found[first:]


def _plainly(
    combine: Combine, begun: Sequence[Tensor], rows: Sequence[Tensor]
) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    last, made = scan(lambda state, elements: combine(state, elements), list(begun), list(rows), dim=0)
    return list(last), list(made)


def _traced(flat: Callable[..., list[Tensor]], given: Sequence[Tensor]) -> GraphModule:
    with proxy_tensor.disable_proxy_modes_tracing():
        made: GraphModule = reenter_make_fx(flat)(*(one.clone() for one in given))
    return made


def _said(graph: GraphModule) -> str:
    """What a graph computes, with its constants."""
    numbers = "".join(f"{name}={one}" for name, one in sorted(_constants(graph).items()))
    return f"{graph.code}{numbers}"


def _constants(graph: GraphModule) -> dict[str, Tensor]:
    names = [str(node.target) for node in graph.graph.nodes if node.op == "get_attr"]
    return {name: one for name in names if isinstance(one := getattr(graph, name, None), Tensor)}
