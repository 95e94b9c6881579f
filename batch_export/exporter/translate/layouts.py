"""Models that give something else for inputs which lie in memory in another way: a file knows numbers in their order.

Arrives: a captured program with the lines that asked for a layout, the model and its example inputs. Leaves: a warning
with the line, or nothing. What may go by the layout is found in the program: memory read by strides, and writes to what
`reshape` or `contiguous` gave, which is the tensor itself or a copy. Whether it does is found by runs of the model on
the same numbers laid out in other ways; a program that has none of these costs no run.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from batch_export.calling.users_line import users_level
from batch_export.errors import ExportWarning
from batch_export.exporter.capture.capture import as_module
from batch_export.exporter.capture.captured import Captured
from batch_export.exporter.capture.guards import environment_of
from batch_export.exporter.capture.layout_questions import COPYING
from batch_export.exporter.capture.size_oblivious import size_oblivious
from batch_export.exporter.capture.torchscript import is_scripted
from batch_export.exporter.capture.trial import difference, is_fake, results_and_inputs
from batch_export.exporter.graph import metadata
from batch_export.exporter.translate import aliasing
from batch_export.exporter.translate.free_sizes import sizes_put_back
from batch_export.exporter.translate.memory_layout import IN_ORDER_ONLY, READS_MEMORY
from batch_export.exporter.translate.shared_at_sizes import written

_BY_STRIDES = READS_MEMORY | IN_ORDER_ONLY | {"resize_", "resize_as_", "as_strided_"}


def warn_of_layouts(captured: Captured, model: object, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
    """Warns where the model gives something else for the example's numbers in another layout.

    Args:
        captured: the program, and the lines that asked.
        model: what was exported; a scripted one is not run.
        args: positional example inputs.
        kwargs: keyword example inputs.
    """
    with size_oblivious(), sizes_put_back(environment_of(captured.traced)):  # asked, torch fixes the example's sizes
        place = next(_places(captured), None)
    if place is None or is_scripted(model):
        return
    module = model.module(check_guards=False) if isinstance(model, torch.export.ExportedProgram) else as_module(model)
    if is_fake(module, args, kwargs):
        return
    try:
        expected = results_and_inputs(module, args, kwargs)
    except Exception:  # of which others tell
        return
    for form in (_in_order, _turned_round, _spaced):
        given, keywords = pytree.tree_map_only(torch.Tensor, _laid_out(form), (args, dict(kwargs)))
        try:
            actual = results_and_inputs(module, given, keywords)
        except Exception:  # the model takes no such inputs
            continue
        problem = difference(expected, actual)
        if problem:
            warnings.warn(
                f"the model gives something else for inputs that lie in memory in another way ({problem}){place}: a "
                "file knows numbers and no memory, and gives what the model does for inputs laid out as the "
                "example's; call contiguous() or clone() on inputs before, or do without strides",
                ExportWarning,
                stacklevel=users_level(),
            )
            return


def _places(captured: Captured) -> Iterator[str]:
    """The lines that may go by the layout, as a warning has them."""
    for line, method in captured.asked_for_layout.items():
        if method != COPYING:
            yield f", by {method}() at {line}"
    buffers = set(captured.traced.graph_signature.inputs_to_buffers)
    for module in captured.traced.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            changed: set[torch.fx.Node] = set()
            for node in _nodes(module.graph, changed):
                source = metadata.source_location(node)
                yield f", by {node.name}{f' at {source}' if source else ''}"
            if any(one.name not in buffers for one in changed):
                yield from (f", by {name}() at {line}" for line, name in captured.asked_for_layout.items())


def _nodes(graph: torch.fx.Graph, changed: set[torch.fx.Node]) -> Iterator[torch.fx.Node]:
    """Nodes that read memory by strides, and those whose result, itself or a copy, is written or read after a write.

    Args:
        graph: of the program.
        changed: is given what is written to.
    """
    parents: dict[torch.fx.Node, torch.fx.Node] = {}
    either: dict[torch.fx.Node, list[torch.fx.Node]] = defaultdict(list)

    def root(node: torch.fx.Node) -> torch.fx.Node:
        while node in parents:
            node = parents[node]
        return node

    calls = [node for node in graph.nodes if node.op == "call_function"]
    yield from (node for node in calls if getattr(node.target, "_opname", "") in _BY_STRIDES)
    if not any(map(written, calls)):
        return
    for node in calls:
        writes = written(node)
        changed.update(map(root, writes))
        if writes:
            parents[node] = writes[0]
        elif node.target in aliasing.VIEWS_IN_ORDER:
            parents[node] = node.all_input_nodes[0]
            either[root(node)].append(node)
        elif (parent := aliasing.view_parent(node)) is not None:
            parents[node] = parent
    for memory in changed:
        yield from either[memory]


def _laid_out(form: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    def laid_out(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout != torch.strided or tensor.is_quantized or not tensor.dim():
            return tensor
        return form(tensor.detach()).requires_grad_(tensor.requires_grad)

    return laid_out


def _in_order(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


def _turned_round(tensor: torch.Tensor) -> torch.Tensor:
    """With its axes in memory the other way round."""
    axes = list(reversed(range(tensor.dim())))
    return _in_order(tensor.permute(axes)).permute(axes)


def _spaced(tensor: torch.Tensor) -> torch.Tensor:
    """Not from the start of its memory, and with as much space between two elements as one takes."""
    memory: Any = torch.zeros([*tensor.shape, 2], dtype=tensor.dtype, device=tensor.device)
    memory[..., 1] = tensor
    return memory[..., 1]  # type: ignore[no-any-return]
