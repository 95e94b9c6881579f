"""Folds weights for a file: what is computed from weights and constants alone is computed once, when it is written.

Arrives: a model whose weights have content. Leaves: a copy of it with fewer nodes, for the file alone. The model itself
keeps the nodes that make one weight of another, so that other weights can be applied later and are folded then. What
grows beyond a limit (a small table that is expanded, a weight that is needed both as it is and transposed) stays a
node.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import onnx_ir as ir
import torch
from onnx_ir import tensor_adapters
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from batch_export.exporter.graph.copies import model_like
from batch_export.exporter.graph.weights import size
from batch_export.exporter.optimise import (
    dead_code,
    equal_parts,
    known_numbers,
    merged_activations,
    merged_norms,
    merged_products,
    merged_scales,
    moved_slices,
    passes,
    repeated_entries,
    rewriting,
    weight_values,
)
from batch_export.exporter.optimise.edits import same_sizes
from batch_export.legalise.nested import WITH_BODIES, bodies_of, graphs_of

GROWTH = 0.1
"""How much larger than the model's own weights the folded ones may be, as a share of them."""
_LEAST_GROWTH = 1 << 16
"""Bytes by which the weights of any model, however small, may grow."""
_LOOKED_AT = 1 << 24
"""Bytes that any result may have, be it only for what follows from it."""


def folded(
    model: ir.Model, growth: float = GROWTH, *, across_modules: bool = True
) -> tuple[ir.Model, passes.PassReport]:
    """A copy of a model with its weights folded; the model itself stays as it is.

    Args:
        model: what is written.
        growth: how much the weights may grow in all, as a share of their bytes (64 KiB are always allowed).
        across_modules: whether products of several modules may become one; not where modules become functions.

    Returns:
        The copy, which shares all tensors that are not folded, and what was done.
    """
    copy = model_like(model)
    return copy, fold(copy, growth, across_modules=across_modules)


def fold(model: ir.Model, growth: float = GROWTH, *, across_modules: bool = True) -> passes.PassReport:
    """Folds the weights of a model itself; see `folded`."""
    begun = time.perf_counter()
    before = passes.node_count(model)
    own = sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value is not None)
    budget = max(_LEAST_GROWTH, int(growth * own))
    shared = _share_equal_buffers(model)
    folding = _Folding(model, budget)
    changes = shared + folding.run() + _decide(model) + merged_norms.merge(model) + merged_scales.merge(model)
    changes += repeated_entries.merge(model) + merged_activations.merge(model)
    changes += merged_products.merge(model) + moved_slices.move(model) if across_modules else 0
    dead_code.remove_dead_code(model)
    after, seconds = passes.node_count(model), time.perf_counter() - begun
    return passes.PassReport("fold weights", before, after, changes, seconds, _remark(folding, budget, own))


def _share_equal_buffers(model: ir.Model) -> int:
    """Buffers of the same content become one, and so does what is computed from them; returns how many went.

    Tables that each layer has anew are such. Parameters keep their names: a file's reader may look for them.
    """
    alike: dict[tuple[str, tuple[int, ...]], list[tuple[ir.Value, Tensor]]] = {}
    merged = 0
    for name, value in list(model.graph.initializers.items()):
        if value.metadata_props.get(rewriting.KIND) != "BUFFER" or value.is_graph_output() or value.is_graph_input():
            continue
        tensor = weight_values.as_tensor(value.const_value)
        if tensor is None or isinstance(tensor, FakeTensor):
            continue
        others = alike.setdefault((str(tensor.dtype), tuple(tensor.shape)), [])
        first = next((one for one, content in others if _same_bytes(content, tensor)), None)
        if first is None:
            others.append((value, tensor))
            continue
        ir.convenience.replace_all_uses_with(value, first)
        del model.graph.initializers[name]
        merged += 1
    if merged:
        equal_parts.merge_equal_nodes(model)
    return merged


def _same_bytes(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one dtype and shape hold the same bits: NaN is NaN, -0.0 is not 0.0."""
    return torch.equal(*(tensor.contiguous().flatten().view(torch.uint8) for tensor in (one, other)))


def _remark(folding: _Folding, limit: int, own: int) -> str:
    """What the limit on growth kept from being folded, and which limit would not have."""
    if not folding.left:
        return ""
    share = math.ceil(100 * folding.needed / max(own, 1)) / 100
    return (
        f"{folding.left} nodes that depend on weights alone stay in the file: without them its weights would grow by "
        f"{folding.needed} bytes, and {limit} are allowed; fold_growth={share} folds them too"
    )


@dataclass(slots=True)
class _Island:
    """Nodes that can be folded and hang together by what they share.

    Attributes:
        nodes: in the order of the graph.
        grown: bytes of what the rest of the model uses of them, less the bytes that nobody needs any more.
    """

    nodes: list[ir.Node] = field(default_factory=list)
    grown: int = 0


class _Folding:
    """One model while its weights are folded.

    Attributes:
        needed: bytes by which the weights grow where everything is folded that can be.
        left: how many nodes the limit kept from being folded.
    """

    def __init__(self, model: ir.Model, budget: int) -> None:
        self._model = model
        self._budget = budget
        self.needed = self.left = 0
        self._opset = model.opset_imports.get("", 18)
        self._known: dict[ir.Value, Tensor | None] = {}
        self._foldable: dict[ir.Node, None] = {}
        graphs = graphs_of(model.graph)
        values = (value for graph in graphs for value in _values(graph)) if len(graphs) > 1 else ()
        self._names = {value.name for value in values if value.name}

    def run(self) -> int:
        """Folds in place; returns how many nodes went."""
        self._walk(self._model.graph)
        waiting = sorted(self._islands(self._foldable), key=lambda island: island.grown)
        self.needed = sum(max(island.grown, 0) for island in waiting)
        gone = 0
        while waiting:
            island = waiting.pop(0)
            if island.grown <= self._budget:
                self._budget -= max(island.grown, 0)
                gone += self._replace(island.nodes)
            else:
                waiting += self._islands(self._smaller(island))
        self.left = len(self._foldable) - gone
        return gone

    # What can be folded.

    def _walk(self, graph: ir.Graph) -> None:
        for node in graph:
            for body in bodies_of(node) if node.domain or node.op_type in WITH_BODIES else ():
                self._walk(body)
            inputs = self._inputs(node)
            if not inputs or any(value.is_graph_output() for value in node.outputs) or self._too_large(node):
                continue
            outputs = weight_values.compute(node, inputs, self._opset)
            if outputs is not None and sum(map(size, outputs)) <= self._most(inputs):
                self._known.update(zip(node.outputs, outputs, strict=True))
                self._foldable[node] = None

    def _inputs(self, node: ir.Node) -> list[Tensor | None]:
        """What a node reads, where all of it is known; nothing where it is not."""
        found: list[Tensor | None] = []
        for value in node.inputs:
            tensor = None if value is None else self._tensor(value)
            if tensor is None and value is not None:
                return []
            found.append(tensor)
        return found

    def _most(self, inputs: Iterable[Tensor | None]) -> int:
        """How large a result may be that is looked at; what of it is written is decided afterwards."""
        return max(_LOOKED_AT, self._budget + sum(size(tensor) for tensor in inputs if tensor is not None))

    def _too_large(self, node: ir.Node) -> bool:
        """Whether the result is known to be too large before it is computed."""
        bytes_ = 0
        for value in node.outputs:
            if value.shape is None or value.dtype is None or not all(isinstance(one, int) for one in value.shape):
                continue
            elements = 1
            for one in value.shape:
                elements *= int(one)  # type: ignore[arg-type]
            bytes_ += int(elements * value.dtype.itemsize)
        return bytes_ > self._most(self._tensor(value) for value in node.inputs if value is not None)

    def _tensor(self, value: ir.Value) -> Tensor | None:
        if value not in self._known:
            if value.producer() is not None or value.const_value is None or value.is_graph_input():
                return None
            tensor = weight_values.as_tensor(value.const_value)
            self._known[value] = None if isinstance(tensor, FakeTensor) else tensor
        return self._known[value]

    # What it costs.

    def _islands(self, nodes: Iterable[ir.Node]) -> list[_Island]:
        """Nodes that use one another's results, or a weight that only they use, count together."""
        chosen = dict.fromkeys(nodes)
        home: dict[ir.Node, ir.Node] = {node: node for node in chosen}

        def root(node: ir.Node) -> ir.Node:
            while home[node] is not node:
                home[node] = node = home[home[node]]
            return node

        own: dict[ir.Value, bool] = {}
        for node in chosen:
            for value in filter(None, node.inputs):
                producer = value.producer()
                if producer is not None and producer in chosen:
                    home[root(node)] = root(producer)
                elif value.is_initializer():
                    users = [user for user, _ in value.uses()]
                    own[value] = all(user in chosen for user in users) and not value.is_graph_output()
                    if own[value]:
                        for user in users:
                            home[root(user)] = root(node)
        islands: dict[ir.Node, _Island] = {}
        for node in chosen:
            island = islands.setdefault(root(node), _Island())
            island.nodes.append(node)
            island.grown += sum(size(self._content(value)) for value in self._leaving(node, chosen))
        for value, is_freed in own.items():
            if is_freed and value.const_value is not None:
                islands[root(next(iter(value.uses()))[0])].grown -= value.const_value.nbytes
        return list(islands.values())

    def _content(self, value: ir.Value) -> Tensor:
        tensor = self._known[value]
        assert tensor is not None
        return tensor

    @staticmethod
    def _leaving(node: ir.Node, chosen: Iterable[ir.Node]) -> Iterator[ir.Value]:
        """The outputs of a node that others than the chosen nodes use."""
        yield from (value for value in node.outputs if any(user not in chosen for user, _ in value.uses()))

    def _smaller(self, island: _Island) -> list[ir.Node]:
        """The island without the node that adds most; what follows from it is known all the same, and may be small."""

        def added(node: ir.Node) -> int:
            taken = sum(size(self._content(value)) for value in filter(None, node.inputs))
            return sum(size(self._content(value)) for value in node.outputs) - taken

        worst = max(island.nodes, key=added)
        if added(worst) <= 0:  # a weight that others use as it is: nothing here can be had for less
            worst = max(island.nodes, key=lambda node: sum(size(self._content(value)) for value in node.outputs))
        return [node for node in island.nodes if node is not worst]

    # Doing it.

    def _replace(self, nodes: list[ir.Node]) -> int:
        chosen = dict.fromkeys(nodes)
        initializers = self._model.graph.initializers
        for node in nodes:
            for value in list(self._leaving(node, chosen)):
                tensor = self._content(value)
                content = tensor_adapters.TorchTensor(tensor, name=value.name)
                kept = ir.Value(
                    name=self._name(value, node),
                    type=ir.TensorType(content.dtype),
                    shape=ir.Shape(tuple(tensor.shape)),
                    const_value=content,
                )
                ir.convenience.replace_all_uses_with(value, kept)
                initializers[str(kept.name)] = kept
        for node in reversed(nodes):
            assert node.graph is not None
            node.graph.remove(node, safe=True)
        return len(nodes)

    def _name(self, value: ir.Value, node: ir.Node) -> str:
        """The value's own name; where it leaves a body, in which names may be those of other bodies, a free one."""
        name = value.name or "folded"
        if node.graph is self._model.graph:
            return name
        number = 0
        while name in self._names:
            number += 1
            name = f"{value.name or 'folded'}_{number}"
        self._names.add(name)
        return name


def _decide(model: ir.Model) -> int:
    """A Where whose condition is the same everywhere is the branch that it takes, a Mul by ones what it multiplies.

    Returns how many went.
    """
    gone = 0
    for graph in graphs_of(model.graph):
        for node in list(graph):
            if node.op_type not in ("Where", "Mul") or node.domain or node.outputs[0].is_graph_output():
                continue
            remains = _branch(node) if node.op_type == "Where" else _multiplied(node)
            if remains is None or not same_sizes(remains.shape, node.outputs[0].shape):
                continue
            ir.convenience.replace_all_uses_with(node.outputs[0], remains)
            graph.remove(node, safe=True)
            gone += 1
    return gone


def _branch(node: ir.Node) -> ir.Value | None:
    condition = known_numbers.everywhere(node.inputs[0])
    return None if condition is None else node.inputs[1 if bool(condition) else 2]


def _multiplied(node: ir.Node) -> ir.Value | None:
    for factor, other in (node.inputs, reversed(node.inputs)):
        number = known_numbers.everywhere(factor)
        if number is not None and bool(number == 1):
            return other
    return None


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs
