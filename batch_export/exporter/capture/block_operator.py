"""The operator that stands for a whole block in a captured graph, and what runs in its place.

Arrives: the nodes of a recorded block in a finished program (`Source`). Leaves: an operator with a number that says
which; run on tensors, it runs those nodes, so that a program can be tried before its blocks are written out.
"""

from __future__ import annotations

import operator
import weakref
from dataclasses import dataclass, field

import torch

_LIBRARY = torch.library.Library("batch_export_blocks", "DEF")
_LIBRARY.define("block(Tensor[] given, Scalar[] sizes, int number) -> Tensor[]")
_LIBRARY.define("weight() -> Tensor")
OPERATOR = torch.ops.batch_export_blocks.block.default
WEIGHT = torch.ops.batch_export_blocks.weight.default
"""Stands for a weight that is hidden from a capture and is read all the same, until it is an input."""
NAME = "batch_export_weight"
"""Metadata of that operator's node: the weight's name in the model."""
COPY = "batch_export_copy"
"""Metadata of the operator's node: which block it is, `Copied`."""


@dataclass(frozen=True, slots=True)
class Copied:
    """A block that another one's nodes stand for.

    Attributes:
        path: of the block in the model.
        before: path in the block -> how many more calls that module had before than that of the recording.
        names: of the nodes that it stands for, in the source's order, once the program is finished.
        absent: places among what it is given, in order, and names of the weights that are hidden from the capture.
    """

    path: str
    before: dict[str, int]
    names: tuple[str, ...] = ()
    absent: tuple[tuple[int, str], ...] = ()


@dataclass(slots=True, weakref_slot=True)
class Source:
    """The nodes of a recorded block in a finished program.

    Attributes:
        number: of the recording.
        path: of the block in the model.
        nodes: in order.
        given: what they read from outside, sizes apart: for each argument of a copy, the block's own.
        sizes: the sizes that they read.
        results: the nodes that are read after the call, in order.
    """

    number: int
    path: str
    nodes: list[torch.fx.Node]
    given: list[torch.fx.Node]
    sizes: list[torch.fx.Node]
    results: list[torch.fx.Node]
    module: torch.fx.GraphModule | None = field(default=None)

    def run(self, given: list[torch.Tensor], sizes: list[object]) -> list[torch.Tensor]:
        """What the block gives for another one's inputs and weights."""
        if self.module is None:
            self.module = self._as_module()
        found: list[torch.Tensor] = self.module(*given, *sizes)
        return found

    def _as_module(self) -> torch.fx.GraphModule:
        graph = torch.fx.Graph()
        env = {node: graph.placeholder(f"given_{at}") for at, node in enumerate([*self.given, *self.sizes])}
        for node in self.nodes:
            env[node] = graph.node_copy(node, lambda one: env[one])
        graph.output([env[node] for node in self.results])
        return torch.fx.GraphModule({}, graph)


SOURCES: weakref.WeakValueDictionary[int, Source] = weakref.WeakValueDictionary()
"""The sources of the programs that are alive, by number."""


def _run(given: list[torch.Tensor], sizes: list[object], number: int) -> list[torch.Tensor]:
    return SOURCES[number].run(given, sizes)


_LIBRARY.impl("block", _run, "CompositeExplicitAutograd")


def is_copy(node: torch.fx.Node) -> bool:
    """Whether a node stands for a whole block."""
    return node.target is OPERATOR


def is_piece(node: torch.fx.Node) -> bool:
    """Whether a node is a result of a node that stands for a whole block."""
    return (
        node.target is operator.getitem and isinstance(node.args[0], torch.fx.Node) and node.args[0].target is OPERATOR
    )
