"""Walks a captured graph and translates it node by node.

Arrives: graph modules whose placeholders are bound to ONNX values. Leaves: nodes in the recorder, and the converted
output. A node that fails is named, with its operator and source line; missing operators are collected, so that all of
a program's are found in one go. Higher-order operators are `control_flow.py`'s, writes are `writes.py`'s.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Mapping

import onnx_ir as ir
import torch
from torch.utils import _pytree as pytree

from batch_export.errors import MissingOperatorError, OnnxExporterError, TranslationError
from batch_export.exporter.capture.block_operator import is_copy
from batch_export.exporter.capture.shown_shapes import NOT_SHOWN
from batch_export.exporter.graph import metadata
from batch_export.exporter.graph.block_bodies import NotABodyError
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.sizes import expression
from batch_export.exporter.translate import autocast, control_flow, decompose, native
from batch_export.exporter.translate.block_calls import BlockCalls
from batch_export.exporter.translate.operator import IGNORED_NAMES, OperatorTranslator
from batch_export.exporter.translate.registry import OnnxRegistry, qualified_name
from batch_export.exporter.translate.writes import FunctionalisationNeededError, Writes

Environment = dict[torch.fx.Node, object]
"""What each node translated so far is: an ONNX value, a list of them, or a plain object."""


_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)


def _for_checks_only(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """Nodes whose results only assertions read, which a file does not have."""
    found: set[torch.fx.Node] = set()
    for node in reversed(graph.nodes):
        if node.op != "call_function" or not node.users or not all(_is_check(user, found) for user in node.users):
            continue
        if isinstance(node.meta.get("val"), _NUMBERS) and not isinstance(node.target, torch._ops.OperatorBase):
            found.add(node)  # arithmetic of sizes
        elif isinstance(node.target, torch._ops.OpOverload) and not decompose.mutated_arguments(node.target):
            found.add(node)
    return found


def _is_check(node: torch.fx.Node, needless: set[torch.fx.Node]) -> bool:
    return node in needless or (node.op == "call_function" and qualified_name(node.target) in IGNORED_NAMES)


class Translator(OperatorTranslator):
    """Translates one exported program; use `program.translate_program`.

    Attributes:
        inputs: the ONNX inputs that were bound.
        operator_seconds: operator -> seconds spent on it.
        missing: operators without a translation, with the error that names the first node of each.
        writes: views, and what writes to them mean.
        blocks: repeated blocks, of which one is translated.
    """

    def __init__(
        self,
        program: torch.export.ExportedProgram,
        registry: OnnxRegistry,
        axis_names: Mapping[str, str],
        *,
        lowest: Mapping[str, int],
        fold: bool,
    ) -> None:
        super().__init__(program, registry, axis_names, lowest=lowest, fold=fold)
        self.inputs: list[ir.Value] = []
        self.operator_seconds: dict[str, float] = {}
        self.missing: dict[str, OnnxExporterError] = {}
        self.writes = Writes(self)
        self.blocks = BlockCalls(self, program)

    def run_nodes(self, graph_module: torch.fx.GraphModule, env: Environment) -> object:
        """Translates the nodes of a graph whose placeholders are in `env`; returns the converted output."""
        needless = _for_checks_only(graph_module.graph)
        for node in graph_module.graph.nodes:
            if node.op == "placeholder":
                continue
            if node in needless:
                env[node] = None
                continue
            if node.op == "get_attr":
                env[node] = self._attribute(graph_module, str(node.target))
            elif node.op == "output":
                return self.convert(node.args[0], env)
            else:
                begun = time.perf_counter()
                self.blocks.begin(node, env)
                self._call_function(node, env)
                self.blocks.end(node, env)
                name = qualified_name(node.target)
                self.operator_seconds[name] = self.operator_seconds.get(name, 0.0) + time.perf_counter() - begun
        return None

    def _attribute(self, graph_module: torch.fx.GraphModule, path: str) -> object:
        found: object = graph_module
        for part in path.split("."):
            found = getattr(found, part)
        return self.tensor_constant(found) if isinstance(found, torch.Tensor) else found

    def _call_function(self, node: torch.fx.Node, env: Environment) -> None:
        target = node.target
        qualified = qualified_name(target)
        if qualified in IGNORED_NAMES or (qualified == autocast.ENTERED and not autocast.is_on(node)):
            env[node] = None
            return
        self.recorder.metadata = metadata.node_metadata(node)
        self.recorder.node_prefix = f"node_{node.name}_"
        try:
            if qualified == autocast.ENTERED:
                raise autocast.around_operators()
            env[node] = self._translate_node(node, env, qualified)
            _keep_apart(env[node], node)
        except (FunctionalisationNeededError, NotABodyError):
            raise
        except OnnxExporterError as error:
            env[node] = self._failed(node, error)
        except Exception as error:
            first = str(error).strip().partition("\n")[0].rstrip(".")
            failure = TranslationError(
                f"the translation failed: {type(error).__name__}: {first}",
                next_step="run with report=True for the exported program, or pass custom_translation_table",
            )
            failure.__cause__ = error
            env[node] = self._failed(node, failure)

    def _failed(self, node: torch.fx.Node, error: OnnxExporterError) -> object:
        """What stands for a node that failed while missing operators are collected.

        Raises:
            OnnxExporterError: the error, naming the node, where none are, or where it is a body's node that failed.
        """
        in_body = error.node is not None
        error.located_at(metadata.place(node))
        if isinstance(error, MissingOperatorError):
            for name in error.operators:
                self.missing.setdefault(name, error)
        elif in_body or not self.missing:
            raise error
        return self._placeholder_result(node)

    def _placeholder_result(self, node: torch.fx.Node) -> object:
        """Stands for a node that failed, so that every missing operator of the program is found in one go."""

        def fresh(fake: object) -> object:
            value = self.recorder.value()
            self.describe(value, fake)
            return value

        return pytree.tree_map(fresh, node.meta.get("val"))

    def _translate_node(self, node: torch.fx.Node, env: Environment, qualified: str) -> object:
        target = node.target
        if target is operator.getitem:
            if not node.users:
                return None
            self.writes.notice(node)
            container, index = env[node.args[0]], node.args[1]  # type: ignore[index]
            if isinstance(container, (list, tuple)):
                return container[index]  # type: ignore[index]
            return self.conform(op.SequenceAt(container, index), node.meta.get("val"), node.name)
        if is_copy(node):
            return self.blocks.translate(node, env)
        if isinstance(target, torch._ops.HigherOrderOperator):
            return control_flow.translate(self, node, env)
        if native.is_native(target):
            made = native.translate(self, node, env)
            named = native.is_symbolic(target)  # with the dtypes that it was given
            return made if named else self.conform(made, node.meta.get("val"), node.name)
        fake = node.meta.get("val")
        written = decompose.mutated_arguments(target)
        if written and not qualified.startswith("aten::detach"):
            return self.writes.translate(node, env, written)
        if isinstance(fake, _NUMBERS):
            if expression(fake).is_number:
                return self.plain(fake)
            if (declared := self.sizes.declared(fake)) is not None:
                return declared
        if self.writes.moves_statistics(node, qualified):
            return self.writes.translate_training_norm(node, env, qualified)
        self.writes.notice(node)
        args = [self.convert(argument, env) for argument in node.args]
        kwargs = {name: self.convert(argument, env) for name, argument in node.kwargs.items()}
        return self.apply(node, target, args, kwargs, fake, env)


def _keep_apart(result: object, node: torch.fx.Node) -> None:
    """Gives axes of a result names of their own where the program shows a size that they do not always have.

    A runtime takes what is shown for what is there: it lets values of one shape use the memory of one another.
    """
    axes = node.meta.get(NOT_SHOWN, ())
    if axes and isinstance(result, ir.Value) and result.shape is not None and result.producer() is not None:
        sizes = enumerate(result.shape.dims)
        named = [ir.SymbolicDim(f"{node.name}_axis_{axis}") if axis in axes else size for axis, size in sizes]
        result.shape = ir.Shape(named)
