"""Values inside an exported program as eager PyTorch computes them, by the names of FX nodes.

An exported program and its inputs arrive; the values asked for leave, each a copy made the moment its node ran, so a
later write in place does not change it. All other values are freed as soon as nobody needs them. The program's own
state is never changed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from batch_export.exporter.graph.metadata import modules_around, source_location, target_name
from batch_export.exporter.graph.tensor_values import to_value
from batch_export.numbers.values import Value


class EagerValues:
    """Runs an exported program node by node.

    Args:
        program: the exported program.
        args: positional inputs, nested as the model takes them.
        kwargs: keyword inputs.

    Attributes:
        nodes: value name -> FX node. A node with several results has one name for each, `split_0`, `split_1`, ...
        passes: how often the whole program was run.
    """

    def __init__(
        self, program: torch.export.ExportedProgram, args: Sequence[object], kwargs: Mapping[str, object] | None = None
    ) -> None:
        self.program = program
        self.args, self.kwargs = tuple(args), dict(kwargs or {})
        self.nodes: dict[str, torch.fx.Node] = {}
        self.passes = 0
        for node in program.graph.nodes:
            fake = node.meta.get("val")
            if node.op != "call_function":
                continue
            if isinstance(fake, torch.Tensor):
                self.nodes[node.name] = node
            elif isinstance(fake, (list, tuple)):
                for index, one in enumerate(fake):
                    if isinstance(one, torch.Tensor):
                        self.nodes[f"{node.name}_{index}"] = node
        own = {node.name: node for node in program.graph.nodes if node.op == "call_function"}
        self.nodes |= {name: node for name, node in own.items() if isinstance(node.meta.get("val"), torch.Tensor)}

    @property
    def output_names(self) -> list[str]:
        """FX names of the user outputs in order, constants and None left out."""
        signature = self.program.graph_signature
        return [spec.arg.name for spec in signature.output_specs if spec.kind.name == "USER_OUTPUT" and _is_value(spec)]

    def tensors(self, names: Collection[str]) -> dict[str, Any]:
        """Returns raw results of FX nodes (placeholders included) by node name; tensors are copies."""
        runner = _Recorder(self.program.graph_module, frozenset(names))
        self.passes += 1
        with torch.no_grad():
            runner.run(*self._placeholder_values())
        return runner.kept

    def compute(self, names: Collection[str]) -> dict[str, Value]:
        """Returns values by name (see `nodes`); names that stand for no tensor are left out."""
        wanted = {self.nodes[name].name for name in names if name in self.nodes}
        wanted |= {name for name in names if name not in self.nodes}
        kept = self.tensors(wanted)
        values: dict[str, Value] = {}
        for name in names:
            node = self.nodes.get(name)
            result = kept.get(node.name if node is not None else name)
            if isinstance(result, (list, tuple)) and node is not None and name != node.name:
                result = result[int(name.rpartition("_")[2])]
            if isinstance(result, (bool, int, float)):
                result = torch.tensor(result)
            if isinstance(result, torch.Tensor):
                values[name] = to_value(result)
        return values

    def where(self, name: str) -> tuple[str, str, str | None]:
        """Returns operator, module path and `file:line` of the node behind a value's name."""
        node = self.nodes.get(name)
        if node is None:
            return "", "", None
        paths = [path for path, _ in modules_around(node).values()]
        return target_name(node.target), str(paths[-1]) if paths else "", source_location(node)

    def _placeholder_values(self) -> list[object]:
        leaves = iter(self._flat_inputs())
        values: list[object] = []
        for spec in self.program.graph_signature.input_specs:
            if spec.kind == InputKind.USER_INPUT:
                values.append(_copied(next(leaves)))
            elif spec.kind == InputKind.PARAMETER:
                values.append(self.program.state_dict[str(spec.target)])
            elif spec.kind in (InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
                target = str(spec.target)
                stored = self.program.state_dict.get(target, self.program.constants.get(target))
                values.append(_copied(stored))
            else:
                values.append(self.program.constants.get(str(spec.target)))
        return values

    def _flat_inputs(self) -> list[Any]:
        keywords = self.kwargs
        in_spec = self.program.call_spec.in_spec
        parts: Any = in_spec.children()
        if len(parts) > 1:
            order = list(parts[1].context or ())
            keywords = {name: self.kwargs[name] for name in [*order, *self.kwargs] if name in self.kwargs}
        return pytree.tree_leaves((self.args, keywords), is_leaf=lambda leaf: leaf is None)


class _Recorder(torch.fx.Interpreter):
    def __init__(self, module: torch.fx.GraphModule, wanted: frozenset[str]) -> None:
        super().__init__(module, garbage_collect_values=True)
        self._wanted = wanted
        self.kept: dict[str, object] = {}

    def run_node(self, n: torch.fx.Node) -> object:
        result = super().run_node(n)
        if n.name in self._wanted:
            self.kept[n.name] = pytree.tree_map(_copied, result)
        return result


def _copied(value: object) -> object:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _is_value(spec: Any) -> bool:
    return hasattr(spec.arg, "name") and not (hasattr(spec.arg, "value") and spec.arg.value is None)
