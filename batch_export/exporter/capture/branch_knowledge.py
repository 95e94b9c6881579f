"""What one branch of a `cond` takes for granted of data is not known in the other one, nor behind both.

Nothing arrives. Leaves: a context in which `torch.ops.higher_order.cond` is traced so. Torch (2.13) has one table of
what it knows of sizes that go by the data: `n >= 0` of one branch and `n <= 0` of the other made `n` the constant 0.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch._higher_order_ops.utils import reenter_make_fx, unique_graph_id
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import track_tensor_tree
from torch.utils import _pytree as pytree

from batch_export.exporter.capture.size_ranges import sizes_as_before

_MODULE = importlib.import_module("torch._higher_order_ops.cond")  # a function of that name hides it
_BY_SYMBOL = ("var_to_range", "var_to_range_sloc", "replacements", "replacements_slocs", "deferred_runtime_asserts")


@contextlib.contextmanager
def knowledge_of_branches() -> Iterator[None]:
    """Within, branches of `cond` are traced apart.

    NOTE: this replaces a function of torch's while a model is captured.
    """
    own: Any = _MODULE.trace_cond
    _MODULE.trace_cond = _trace_cond  # type: ignore[attr-defined]
    try:
        yield
    finally:
        _MODULE.trace_cond = own  # type: ignore[attr-defined]


def _trace_cond(
    proxy_mode: Any,
    operator: Callable[..., Any],
    predicate: object,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: tuple[object, ...],
) -> object:
    """As torch's own of this name, of one table of knowledge for each branch."""
    mode = detect_fake_mode(operands)
    graphs: list[torch.fx.GraphModule] = []
    for branch in (true_fn, false_fn):
        with _left_behind(mode), sizes_as_before(operands):
            graphs.append(reenter_make_fx(branch)(*operands))
    root = proxy_mode.tracer.root
    number, true_name = unique_graph_id(proxy_mode, prefix="true_graph")
    root.register_module(true_name, graphs[0])
    root.register_module(f"false_graph_{number}", graphs[1])
    given = pytree.tree_map(proxy_mode.tracer.unwrap_proxy, (predicate, *graphs, operands))
    proxy = proxy_mode.tracer.create_proxy("call_function", operator, given, {})
    merge: Callable[..., Any] = _MODULE._merge_output
    results = tuple(merge(one, other, mode) for one, other in zip(*map(_results, graphs), strict=True))
    return track_tensor_tree(results, proxy, constant=None, tracer=proxy_mode.tracer)


def _results(graph: torch.fx.GraphModule) -> list[object]:
    (output,) = graph.graph.find_nodes(op="output")
    return [one.meta["val"] if isinstance(one, torch.fx.Node) else one for one in pytree.arg_tree_leaves(*output.args)]


@contextlib.contextmanager
def _left_behind(mode: FakeTensorMode | None) -> Iterator[None]:
    """What is learnt within of numbers of the data that were there before is forgotten at the end."""
    environment: Any = mode.shape_env if mode is not None else None
    if mode is None or environment is None:
        yield
        return
    before = {name: dict(getattr(environment, name)) for name in _BY_SYMBOL}
    asserted = {symbol: list(some) for symbol, some in before["deferred_runtime_asserts"].items()}
    axioms, size_like = dict(environment.axioms), set(environment.size_like)
    known = {symbol for symbol in environment.var_to_range if symbol not in environment.backed_var_to_val}
    mode.epoch += 1  # what an operator found of the data, such as a number of places, is of this branch
    try:
        yield
    finally:
        mode.epoch += 1
        for name, table in before.items():
            now = getattr(environment, name)
            for symbol in known | {None}:
                now.pop(symbol, None)
                if symbol in table:
                    now[symbol] = table[symbol]
        environment.deferred_runtime_asserts.update(asserted)
        environment.axioms.clear()
        environment.axioms.update(axioms)
        environment.size_like.difference_update(known - size_like)
        environment._replacements_version_counter += 1  # torch's answers so far go by these two
        environment._version_counter += 1
