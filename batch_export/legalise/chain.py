"""From one opset to another, step by step.

Arrives: a model whose nodes of ONNX's own domain mean what they mean at one opset (or, a single node, at the version
that it names), and the opset wanted. Leaves: the same model, changed in place, at exactly that opset: every node has
a schema there and says nothing that the schema does not know. What has no form there is an error, never another opset.
Nodes of other domains are left as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import onnx
import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from batch_export.errors import NoFormError
from batch_export.legalise import steps
from batch_export.legalise.nested import graphs_of, nodes_of
from batch_export.legalise.replacing import insert_before, replace
from batch_export.legalise.rules import FIXED, Locate, NoForm, Rule, nowhere, schema_of
from batch_export.legalise.writing import Writer

_CONSTANTS_OF_ANY_DTYPE = 9
"""The first opset whose Constant gives other dtypes than fractions; weights are of any dtype at each."""
_DEFAULTS = 4
"""The first IR version in which an input with a content may be given another; before it every weight is an input."""


def legalise(model: ir.Model, start: int, target: int, locate: Locate = nowhere) -> int:
    """Brings a model to opset `target`, in place.

    Args:
        model: without functions of its own.
        start: the opset that its nodes are written for; one that names a version is written for that.
        target: the opset wanted.
        locate: `file:line` in the user's model that a node came from.

    Returns:
        How many nodes were written anew or changed.

    Raises:
        NoFormError: an operator has no form at that opset; it names the operator, its line and the nearest opset.
    """
    if model.ir_version < _DEFAULTS:
        for value in model.graph.initializers.values():
            value.meta[FIXED] = True
    nodes, versions = _own(model), set()
    for node in nodes:
        version = node.version = node.version or start
        versions.add(version)
    changed = 0
    steps_down = range(max(versions, default=target) - 1, target - 1, -1)
    steps_up = range(min(versions, default=target) + 1, target + 1)
    for level in (*steps_down, *steps_up):
        made = _step(nodes, level, target, locate, down=level in steps_down)
        nodes = _own(model) if made else nodes
        changed += made
    if target < _CONSTANTS_OF_ANY_DTYPE:
        common_passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    for graph in graphs_of(model.graph):
        graph.opset_imports[""] = target
    for node in _own(model) if target < _CONSTANTS_OF_ANY_DTYPE else nodes:
        node.version = None
    return changed


def _own(model: ir.Model) -> list[ir.Node]:
    """The nodes of ONNX's own domain, those of bodies too."""
    return [node for node in nodes_of(model.graph) if node.domain == ""]


def _step(nodes: Sequence[ir.Node], level: int, target: int, locate: Locate, *, down: bool) -> int:
    """One step to `level`: of the nodes at the opset above it, or at the one below it."""
    rules = (steps.DOWN if down else steps.UP).get(level, {})
    left = level + 1 if down else level - 1
    changed = 0
    waiting = [node for node in nodes if node.version == left]
    while waiting:
        node = waiting.pop()
        node.version = level
        rule = rules.get(node.op_type)
        try:
            if rule is not None:
                before = dict(node.attributes), list(node.inputs)
                parts = _apply(node, rule, left, level)
                changed += parts is not None or before != (dict(node.attributes), list(node.inputs))
                if parts is not None:
                    waiting += parts if rule.again else []
                    continue
            _require(node, level, left)
        except NoForm as reason:
            raise _no_form(node, str(reason), left, target, locate) from reason
    return changed


def _apply(node: ir.Node, rule: Rule, left: int, level: int) -> list[ir.Node] | None:
    """What was written in the place of a node; None where it stays."""
    op = Writer()
    if not node.name:
        node.name = f"{node.op_type}_{node.outputs[0].name}"
    made = rule.write(node, op)
    parts = op.nodes
    for part in parts:
        part.version = left if rule.again else level
        for inner in _in_bodies(part):
            inner.version = level
    if made is None:
        insert_before(node, parts, f"opset{level}")
        return None
    replace(node, parts, [made] if isinstance(made, ir.Value) else made, f"opset{level}")
    return parts


def _in_bodies(part: ir.Node) -> list[ir.Node]:
    """The nodes in the bodies of a node."""
    graphs = [one.value for one in part.attributes.values() if one.type == ir.AttributeType.GRAPH]
    return [node for graph in graphs for node in graph.all_nodes()]


def _require(node: ir.Node, level: int, left: int) -> None:
    """That the operator's schema at an opset knows what the node says; attributes that say the default are left out.

    Raises:
        NoForm: it does not.
    """
    attributes, read = node.attributes.data, node.inputs
    inputs, outputs = len(read), len(node.outputs)
    while inputs and read[inputs - 1] is None:
        inputs -= 1
    if _is_known_to_fit(node.op_type, level, tuple(attributes), inputs, outputs):
        return
    schema = schema_of(node.op_type, level)
    if schema is None:
        raise NoForm(node.op_type)
    for name in [name for name in attributes if name not in schema.attributes] if attributes else ():
        later = schema_of(node.op_type, left) or schema
        default = later.attributes.get(name)
        if default is None or onnx.helper.get_attribute_value(default) != _plain(node, name):
            raise NoForm(f"{node.op_type} with the attribute {name}")
        del node.attributes[name]
    if inputs > schema.max_input or outputs > schema.max_output:
        raise NoForm(f"{node.op_type} with {inputs} inputs and {outputs} outputs")


@functools.cache
def _is_known_to_fit(op_type: str, level: int, attributes: tuple[str, ...], inputs: int, outputs: int) -> bool:
    """Whether the operator's schema at an opset has all of this; the numbers of inputs and outputs are those in use."""
    schema = schema_of(op_type, level)
    return (
        schema is not None
        and all(name in schema.attributes for name in attributes)
        and inputs <= schema.max_input
        and outputs <= schema.max_output
    )


def _plain(node: ir.Node, name: str) -> Any:
    return onnx.helper.get_attribute_value(ir.serde.serialize_attribute(node.attributes[name]))


def _no_form(node: ir.Node, what: str, nearest: int, target: int, locate: Locate) -> NoFormError:
    """The error for a node that has a form at the nearest opset, and none from there on to the target."""
    down = target < nearest
    return NoFormError(
        f"{what} has no form at opset {target}",
        lowest=nearest if down else None,
        highest=None if down else nearest,
        node=node.name,
        operator=node.op_type,
        source=locate(node),
        next_step=f"choose opset {nearest}, the {'lowest' if down else 'highest'} at which it has one, "
        f"or {'a later' if down else 'an earlier'} one",
    )
