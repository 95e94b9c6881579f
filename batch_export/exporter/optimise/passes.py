"""Optimisation of a translated model: small passes, each of which says what it did. Weights are never computed with.

Arrives: an `onnx_ir.Model`. Leaves: the same model, changed in place, and one line per pass with node counts. Constant
expressions were computed while the graph was recorded; the passes here remove what is left over, apply onnxscript's
rewrite rules (indexed by the operator at a rule's root, so that a node meets only rules that can match it), and merge
what is equal. Parameters keep their tensor objects, so rules that fold a weight into another (batch normalisation into
a convolution, say) are left to the runtime, which does it when it loads the file.
"""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
import onnx_ir.passes.common as common_passes
from onnxscript.rewriter import RewriteRule
from torch._subclasses.fake_tensor import FakeTensor

from batch_export.errors import OptimisationError
from batch_export.exporter.graph import block_bodies, metadata, weights
from batch_export.exporter.graph.block_bodies import Body
from batch_export.exporter.optimise import constant_folding, known_sizes, moved_axes, rewrite_rules, shorter_forms

_ROUNDS = 3
_FAR = 8
"""Further up than any rule's pattern reaches."""
_MERGED_ELEMENTS = 1024
KIND = metadata.KIND.format(side="Input")
"""The key of an initializer's metadata that says whether it is a PARAMETER or a BUFFER."""


@dataclass(frozen=True, slots=True)
class PassReport:
    """What one pass did: its name, the node counts before and after, rewrites made, and seconds.

    Attributes:
        remark: what the pass left undone and could do, in a sentence; empty where there is no such thing.
    """

    name: str
    nodes_before: int
    nodes_after: int
    changes: int
    seconds: float
    remark: str = ""


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
            candidates = [rule for rule in candidates if len(list(rule._target_pattern)) >= near.get(node, _FAR)]
        if candidates and not any(value.uses() or value.is_graph_output() for value in node.outputs):
            continue  # a rule that leaves its root in place would fit again and again
        for rule in candidates:
            replacement = rule.try_rewrite(model, graph, node)
            if replacement is None:
                continue
            for initializer in replacement.new_initializers:
                assert initializer.name is not None
                graph.initializers[initializer.name] = initializer
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
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                count += _rewrite_graph(model, attribute.value, index, near)
    return count


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


def _rewrite(model: ir.Model) -> int:
    index = rewrite_rules.indexed_rules()
    with _weights_unseen(model):
        return _rewrite_all(model, index)


def _rewrite_near(model: ir.Model, seams: Sequence[ir.Value]) -> int:
    """Rewrites what only now is seen together, at values that blocks were given or gave."""
    index = rewrite_rules.indexed_rules()
    near = downstream(seams)
    with _weights_unseen(model):
        return _rewrite_all(model, index, near)


def downstream(values: Iterable[ir.Value]) -> dict[ir.Node, int]:
    """How many nodes down from one of some values a node is, for those that a rule could reach it from."""
    found: dict[ir.Node, int] = {}
    front = list(values)
    for distance in range(1, _FAR):
        readers = [node for value in front for node, _ in value.uses() if node not in found]
        found.update((node, distance) for node in readers)
        front = [value for node in readers for value in node.outputs]
    return found


def _rewrite_all(
    model: ir.Model, index: Mapping[str, Sequence[RewriteRule]], near: dict[ir.Node, int] | None = None
) -> int:
    for rule in {id(rule): rule for found in index.values() for rule in found}.values():
        if rule.graph_pre_visitor:
            rule.graph_pre_visitor()
    count = _rewrite_graph(model, model.graph, index, near)
    if count:
        _lift_constants(model)
        common_passes.NameFixPass()(model)
    return count


def _share_weights(model: ir.Model) -> int:
    """Initializers over the same memory become one: tied weights are stored once."""
    seen: dict[Any, ir.Value] = {}
    merged = 0
    outputs = set(model.graph.outputs)
    for name, value in list(model.graph.initializers.items()):
        raw = getattr(value.const_value, "raw", None)
        if raw is None or not hasattr(raw, "data_ptr") or not hasattr(raw, "stride") or value in outputs:
            continue
        address = 0 if isinstance(raw, FakeTensor) else raw.data_ptr()  # a tensor without memory shares nothing
        if not address:
            continue
        key = (address, tuple(raw.shape), tuple(raw.stride()), str(raw.dtype))
        first = seen.setdefault(key, value)
        if first is not value:
            ir.convenience.replace_all_uses_with(value, first)
            del model.graph.initializers[name]
            merged += 1
    return merged


def _merge_constants(model: ir.Model) -> int:
    """Constants with equal content become one."""
    seen: dict[Any, ir.Value] = {}
    merged = 0
    outputs = set(model.graph.outputs)
    for name, value in list(model.graph.initializers.items()):
        tensor = value.const_value
        if tensor is None or weights.is_torch_tensor(value) or value in outputs or tensor.size > _MERGED_ELEMENTS:
            continue
        if tensor.dtype == ir.DataType.STRING:
            continue
        key = (tensor.dtype, tensor.shape.numpy(), tensor.tobytes())
        first = seen.setdefault(key, value)
        if first is not value:
            ir.convenience.replace_all_uses_with(value, first)
            del model.graph.initializers[name]
            merged += 1
    return merged


def _common_subexpressions(model: ir.Model) -> int:
    return int(common_passes.CommonSubexpressionEliminationPass()(model).modified)


def _identities(model: ir.Model) -> int:
    return int(common_passes.IdentityEliminationPass()(model).modified)


def remove_dead_code(model: ir.Model) -> int:
    """Removes nodes, initializers and operator sets that nothing uses; returns how many of the first two."""
    changed = common_passes.RemoveUnusedNodesPass()(model).modified
    unused = [
        name for name, value in model.graph.initializers.items() if not value.uses() and not value.is_graph_output()
    ]
    for name in unused:
        del model.graph.initializers[name]
    common_passes.RemoveUnusedOpsetsPass()(model)
    return int(changed) + len(unused)


def _is_from_outside(value: ir.Value, body: ir.Graph) -> bool:
    """Whether a body's output is neither made in it nor an input of it."""
    producer = value.producer()
    return (producer is None or producer.graph is not body) and value not in body.inputs


def _separate_outputs(model: ir.Model) -> int:
    """Gives each output of a graph or body a value of its own again: onnxruntime computes wrong numbers otherwise.

    Removing an Identity, a rewrite, or merging equal nodes can leave one value listed as two outputs (a state of a Scan
    that is also its slice), or as the output of a body that it is not made in. NOTE: measured with onnxruntime 1.31.
    """
    copies = 0
    for graph in (model.graph, *model.graph.subgraphs()):
        seen: set[ir.Value] = set()
        for index, value in enumerate(graph.outputs):
            if value in seen or (graph is not model.graph and _is_from_outside(value, graph)):
                copies += 1
                copy = ir.Value(name=f"{value.name}_again_{copies}", type=value.type, shape=value.shape)
                graph.append(ir.Node("", "Identity", [value], outputs=[copy], name=f"{value.name}_copy_{copies}"))
                graph.outputs[index] = value = copy
            seen.add(value)
    return copies


def merge_equal_nodes(model: ir.Model) -> None:
    """Makes nodes that compute the same one node; outputs stay values of their own."""
    _common_subexpressions(model)
    _separate_outputs(model)


PASSES: tuple[tuple[str, Callable[[ir.Model], int]], ...] = (
    ("rewrite", _rewrite),
    ("fold", constant_folding.fold),
    ("identity", _identities),
    ("shorter forms", shorter_forms.shorten),
    ("sizes", known_sizes.simplify),
    ("moved axes", moved_axes.move),
    ("weights", _share_weights),
    ("constants", _merge_constants),
    ("subexpressions", _common_subexpressions),
    ("dead code", remove_dead_code),
    ("outputs", _separate_outputs),
)


_SEPARATE = 4
"""Up to which of them a model's own nodes are optimised before those of its blocks are written out."""


def _resolve(one: Any) -> Any:
    """A pass as it is; a dotted name (as configs have it) as the pass that it names.

    Raises:
        OptimisationError: naming what cannot be imported.
    """
    if not isinstance(one, str):
        return one
    module, _, name = one.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise OptimisationError(
            f"there is no pass {one!r}: {error}", next_step="name it as package.module.Class or package.module.object"
        ) from error
    return found() if isinstance(found, type) else found


def _keep_known(outputs: Sequence[ir.Value], known: Sequence[tuple[Any, ir.Shape | None, dict[str, str]]]) -> None:
    """Writes onto the outputs what was known of them: a pass may have put a value in their place that says less."""
    if len(outputs) != len(known):
        return
    for value, (kind, shape, properties) in zip(outputs, known, strict=True):
        value.type = value.type if value.type is not None else kind
        if value.shape is None or (shape is not None and len(shape) == len(value.shape)):
            value.shape = _better(value.shape, shape)
        for name, text in properties.items():
            value.metadata_props.setdefault(name, text)


def _better(shape: ir.Shape | None, known: ir.Shape | None) -> ir.Shape | None:
    """Axis by axis the size that says most: a number, then a name."""
    if shape is None or known is None:
        return known if shape is None else shape

    def says(size: Any) -> int:
        return 2 if isinstance(size, int) else int(size.value is not None)

    return ir.Shape([max(pair, key=says) for pair in zip(known, shape, strict=True)])


def node_count(model: ir.Model) -> int:
    """The nodes of a model, those of bodies too."""
    return _count(model.graph)


def _count(graph: ir.Graph) -> int:
    inner = (
        attribute.value
        for node in graph
        for attribute in node.attributes.values()
        if attribute.type == ir.AttributeType.GRAPH
    )
    return len(graph) + sum(map(_count, inner))


def _with_bodies(
    bodies: Sequence[Body],
    run: Callable[[str, Callable[[ir.Model], int]], int],
    rounds: Callable[[tuple[str, Callable[[ir.Model], int]]], None],
) -> Sequence[tuple[str, Callable[[ir.Model], int]]]:
    """Optimises bodies apart from the model that calls them, and writes them out; returns the passes yet to be run."""
    for name, function in PASSES[1:_SEPARATE]:
        run(name, function)
    has_own = block_bodies.share_constants(bodies)
    for body in bodies:
        optimise(body.model)
    seams: list[ir.Value] = []

    def write_out(model: ir.Model) -> int:
        seams.extend(block_bodies.written_out(model, bodies))
        return sum(len(body.calls) for body in bodies)

    run("blocks", write_out)
    rounds(("seams", lambda model: _rewrite_near(model, seams)))
    return PASSES[1 if has_own else 2 :]


def optimise(
    model: ir.Model, extra: Sequence[Any] = (), bodies: Sequence[Body] = (), *, standard: bool = True
) -> list[PassReport]:
    """Runs the passes in place.

    Args:
        model: the model to change.
        extra: onnx-ir passes, or their dotted names, that run after ours, in order.
        bodies: repeated blocks that the model calls: they are optimised once each, and written out for every call.
        standard: whether ours run.

    Returns:
        One report per pass that ran.

    Raises:
        OptimisationError: naming the pass that failed.
    """
    reports: list[PassReport] = []
    count = node_count(model)

    def run(name: str, function: Callable[[ir.Model], int]) -> int:
        nonlocal count
        before, begun = count, time.perf_counter()
        known = [(value.type, value.shape, dict(value.metadata_props)) for value in model.graph.outputs]
        try:
            changes = function(model)
        except Exception as error:
            raise OptimisationError(
                f"the optimiser's pass {name!r} failed: {type(error).__name__}: {error}",
                next_step="export with optimize=False and report this model",
            ) from error
        _keep_known(model.graph.outputs, known)
        seconds, count = time.perf_counter() - begun, node_count(model)
        reports.append(PassReport(name, before, count, changes, seconds))
        return changes

    def rounds(one_round: tuple[str, Callable[[ir.Model], int]]) -> None:
        for _ in range(_ROUNDS):
            if not run(*one_round):
                break

    if standard:
        rounds(PASSES[0])
        for name, function in _with_bodies(bodies, run, rounds) if bodies else PASSES[1:]:
            run(name, function)
    for one in map(_resolve, extra):
        run(getattr(one, "name", type(one).__name__), lambda given, one=one: int(one(given).modified))  # type: ignore[misc]
    return reports
