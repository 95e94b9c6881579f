"""Applies onnxscript's rewrite rules to a model: indexed by the operator at a rule's root, so that a node meets only
rules that can match it.

Arrives: a model. Leaves: the same one, changed in place, and how many rewrites there were. Weights have no content
meanwhile, so that what a rule does holds for any weights applied later.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx_ir as ir
import onnx_ir.passes.common as common_passes
from onnxscript.rewriter import RewriteRule

from batch_export.exporter.graph import metadata, weights
from batch_export.exporter.optimise import rewrite_rules
from batch_export.legalise.nested import bodies_of

_FAR = 8
"""Further up than any rule's pattern reaches."""
KIND = metadata.KIND.format(side="Input")
"""The key of an initializer's metadata that says whether it is a PARAMETER or a BUFFER."""


def rewrite(model: ir.Model) -> int:
    """Rewrites whatever a rule matches."""
    index = rewrite_rules.indexed_rules()
    with _weights_unseen(model):
        return apply(model, index)


def rewrite_near(model: ir.Model, seams: Sequence[ir.Value]) -> int:
    """Rewrites what only now is seen together, at values that blocks were given or gave."""
    index = rewrite_rules.indexed_rules()
    near = downstream(seams)
    with _weights_unseen(model):
        return apply(model, index, near)


def downstream(values: Iterable[ir.Value]) -> dict[ir.Node, int]:
    """How many nodes down from one of some values a node is, for those that a rule could reach it from."""
    found: dict[ir.Node, int] = {}
    front = list(values)
    for distance in range(1, _FAR):
        readers = [node for value in front for node, _ in value.uses() if node not in found]
        found.update((node, distance) for node in readers)
        front = [value for node in readers for value in node.outputs]
    return found


@functools.cache
def _reach(rule: RewriteRule) -> int:
    """How many nodes a rule's pattern has."""
    return len(list(rule._target_pattern))


def apply(model: ir.Model, index: Mapping[str, Sequence[RewriteRule]], near: dict[ir.Node, int] | None = None) -> int:
    """Applies the rules of an index, operator -> rules; see `_rewrite_graph`."""
    for rule in {id(rule): rule for found in index.values() for rule in found}.values():
        if rule.graph_pre_visitor:
            rule.graph_pre_visitor()
    count = _rewrite_graph(model, model.graph, index, near)
    if count:
        _lift_constants(model)
        common_passes.NameFixPass()(model)
    return count


def _rewrite_graph(
    model: ir.Model,
    graph: ir.Graph,
    index: Mapping[str, Sequence[RewriteRule]],
    near: dict[ir.Node, int] | None = None,
) -> int:
    """Tries the rules on each node; with `near` only those whose patterns reach as far up as a node's number says."""
    count = 0
    for node in graph:
        candidates = index.get(node.op_type, ()) if node.domain == "" else ()
        if near is not None:
            distance = near.get(node)
            candidates = [] if distance is None else [one for one in candidates if _reach(one) >= distance]
        if candidates and not any(value.uses() or value.is_graph_output() for value in node.outputs):
            continue  # a rule that leaves its root in place would fit again and again
        for rule in candidates:
            replacement = rule.try_rewrite(model, graph, node)
            if replacement is None:
                continue
            for initializer in replacement.new_initializers:
                _register(graph, initializer)
            matched = list(replacement.match.nodes)
            for made in replacement.new_nodes:
                for origin in (node, *matched):
                    for key, text in origin.metadata_props.items():
                        made.metadata_props.setdefault(key, text)
            ir.convenience.replace_nodes_and_values(
                graph,
                node,
                matched if rule.remove_nodes else [],
                replacement.new_nodes,
                replacement.match.outputs,
                replacement.new_outputs,
            )
            count += 1
            if near is not None:
                near.update(downstream(made for one in replacement.new_nodes for made in one.outputs))
                near.update((made, 1) for made in replacement.new_nodes)
            break
        for body in bodies_of(node):
            count += _rewrite_graph(model, body, index, near)
    return count


def _register(graph: ir.Graph, initializer: ir.Value) -> None:
    """Adds what a rule made; two of the same value have one name by that rule (`x_min`), and are two all the same."""
    assert initializer.name is not None
    names = itertools.chain([initializer.name], (f"{initializer.name}_{count}" for count in itertools.count(1)))
    initializer.name = next(name for name in names if name not in graph.initializers)
    graph.initializers[initializer.name] = initializer


@contextlib.contextmanager
def _weights_unseen(model: ir.Model) -> Iterator[None]:
    """Weights have no content while this is open: what a pass does must hold for any weights applied later.

    Without it a bias of zeros would be removed, and two equal weights merged, for good.
    """
    kept = {
        value: value.const_value
        for value in model.graph.initializers.values()
        if weights.is_torch_tensor(value) and value.metadata_props.get(KIND) in ("PARAMETER", "BUFFER")
    }
    for value in kept:
        value.const_value = None
    try:
        yield
    finally:
        for value, tensor in kept.items():
            value.const_value = tensor


def _lift_constants(model: ir.Model) -> int:
    """Constant nodes that rules made become initializers of the main graph."""
    result = common_passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    return int(result.modified)
