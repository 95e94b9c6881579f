"""Repeated blocks in translation: one block's ONNX nodes stand for all of its like.

Arrives: nodes of a captured graph that stand for whole blocks (`capture/block_operator.py`), and, as they are
translated, the nodes of the blocks whose like they are. Leaves: a call for each in the graph, and each block's ONNX
nodes as a body (`graph/block_bodies.py`), to be optimised once and written out for every call. Where that would not be
what translating the nodes themselves gives, the whole program is translated node by node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir
import torch

from batch_export.exporter.capture.block_expansion import sources
from batch_export.exporter.capture.block_operator import COPY, Copied, Source
from batch_export.exporter.graph import complex_parts
from batch_export.exporter.graph.block_bodies import DOMAIN, Body, NotABodyError, Site, body_of, is_weight
from batch_export.exporter.graph.opsets import TORCHLIB_OPSET
from batch_export.exporter.translate.operator import OperatorTranslator


@dataclass(slots=True)
class _Known:
    """What the translation of a block's own nodes gave."""

    source: Source
    nodes: list[ir.Node] = field(default_factory=list)
    operators: Counter[tuple[str, str]] = field(default_factory=Counter)
    given: list[object] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)
    body: Body | None = None
    standing: list[ir.Value] = field(default_factory=list)


class BlockCalls:
    """The blocks of one program.

    Attributes:
        bodies: the bodies that calls were written of.
    """

    def __init__(self, translator: OperatorTranslator, program: torch.export.ExportedProgram) -> None:
        self._translator = translator
        self._known = {number: _Known(source) for number, source in sources(program).items()}
        self._of: dict[torch.fx.Node, list[_Known]] = {}
        for known in self._known.values():
            for node in known.source.nodes:
                self._of.setdefault(node, []).append(known)
        self._begun = 0
        self._before: dict[str, tuple[int, str]] = {}
        self.bodies: list[Body] = []

    def begin(self, node: torch.fx.Node, env: Mapping[torch.fx.Node, object]) -> None:
        """Notes that a node's translation begins."""
        found = self._of.get(node, ())
        for known in found:
            if node is known.source.nodes[0]:
                known.given = [env[one] for one in known.source.given]
        if found:
            self._begun = len(self._translator.recorder.nodes)
            self._before = dict(self._translator.operators)

    def end(self, node: torch.fx.Node, env: Mapping[torch.fx.Node, object]) -> None:
        """Notes what a node's translation wrote."""
        found = self._of.get(node, ())
        if not found:
            return
        nodes = self._translator.recorder.nodes[self._begun :]
        counts = Counter(
            {
                (name, origin): count - self._before.get(name, (0, ""))[0]
                for name, (count, origin) in self._translator.operators.items()
                if count != self._before.get(name, (0, ""))[0]
            }
        )
        for known in found:
            known.nodes += nodes
            known.operators += counts
            if node is known.source.nodes[-1]:
                known.results = [env[one] for one in known.source.results]

    def translate(self, node: torch.fx.Node, env: Mapping[torch.fx.Node, Any]) -> list[Any]:
        """A call of a body.

        Raises:
            NotABodyError: where the block's nodes could be others when translated here.
        """
        translator = self._translator
        nodes: list[torch.fx.Node]
        number: int
        nodes, _, number = node.args  # type: ignore[assignment]
        known = self._known[number]
        given = [env[one] for one in nodes]
        mapping = _mapping(known.given, given)
        for own, other in mapping.items():
            self._require_alike(own, other)
        own_results = [one for one in known.results if one not in mapping]
        if not all(isinstance(one, ir.Value) for one in known.results):
            raise NotABodyError("a block gives something else than tensors")
        if known.body is None:
            name = f"block_{len(self.bodies)}"
            distinct = list(dict.fromkeys(own_results))
            known.body, known.standing = body_of(
                name, known.source.path, known.nodes, list(mapping), distinct, TORCHLIB_OPSET
            )
            self.bodies.append(known.body)
        call = ir.Node(
            DOMAIN,
            known.body.name,
            [mapping.get(one, one) for one in known.standing],
            outputs=[translator.recorder.value() for _ in known.body.model.graph.outputs],
            version=1,
        )
        translator.recorder.append(call)
        made = dict(zip(dict.fromkeys(own_results), call.outputs, strict=True))
        for one, fake, piece in zip(known.results, node.meta["val"], _pieces(node), strict=True):
            if one in made and piece is not None:
                translator.conform(made[one], fake, piece.name)
        copied: Copied = node.meta[COPY]
        names = {one.name: name for one, name in zip(known.source.nodes, copied.names, strict=True)}
        names.update((one.name, other.name) for one, other in zip(known.source.given, nodes, strict=True))
        known.body.calls[call] = Site(copied.path, names)
        for (operator, origin), count in known.operators.items():
            translator.operators[operator] = (translator.operators.get(operator, (0, ""))[0] + count, origin)
        return [made.get(one, mapping.get(one)) for one in known.results]

    def _require_alike(self, one: ir.Value, other: ir.Value) -> None:
        if one is other:
            return
        if is_weight(one) and is_weight(other):
            return
        if one.const_value is not None or other.const_value is not None:
            raise NotABodyError("a block is given a constant of its own")
        if complex_parts.is_pair(one) != complex_parts.is_pair(other):
            raise NotABodyError("a block is given pairs of numbers")


def _mapping(given: Sequence[object], others: Sequence[object]) -> dict[ir.Value, ir.Value]:
    """A value that a block is given -> that of another call."""
    found: dict[ir.Value, ir.Value] = {}
    for one, other in zip(given, others, strict=True):
        if not isinstance(one, ir.Value) or not isinstance(other, ir.Value):
            raise NotABodyError("a block is given something else than tensors")
        if (one.dtype, one.shape) != (other.dtype, other.shape) or found.setdefault(one, other) is not other:
            raise NotABodyError("a block is given other tensors than its like")
    return found


def _pieces(node: torch.fx.Node) -> list[torch.fx.Node | None]:
    """The node of each result that is read."""
    by_index = {user.args[1]: user for user in node.users}
    return [by_index.get(at) for at in range(len(node.meta["val"]))]
