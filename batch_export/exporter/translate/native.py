"""Operators that a model names in ONNX's own terms: `torch.onnx.ops.symbolic`, `torch.onnx.ops.attention` and friends.

Arrives: an FX node whose target lives in torch's `onnx_symbolic` or `onnx` namespace. Leaves: the ONNX node that was
asked for, or, where the opset does not have that operator yet, what torch's own definition of it is made of.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import onnx
import onnx_ir as ir
import torch
from torch.utils import _pytree as pytree

from batch_export.errors import TranslationError
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.translate.operator import OperatorTranslator

_HEADS = frozenset({"q_num_heads", "kv_num_heads", "num_heads"})
"""Attributes that only inputs of three axes have."""


def is_native(target: object) -> TypeGuard[torch._ops.OpOverload]:
    """Whether the target is one of torch's ONNX operators."""
    return isinstance(target, torch._ops.OpOverload) and target.namespace in ("onnx", "onnx_symbolic")


def is_symbolic(target: object) -> bool:
    """Whether the target is an operator of any domain that the model names, with the dtypes of its outputs."""
    return is_native(target) and target.namespace == "onnx_symbolic"


def translate(translator: OperatorTranslator, node: torch.fx.Node, env: Mapping[torch.fx.Node, object]) -> object:
    """The ONNX value (or values) of a native node."""
    target = node.target
    assert isinstance(target, torch._ops.OpOverload)
    if is_symbolic(target):
        return _symbolic(translator, node, env)
    version = int(target._overloadname.removeprefix("opset"))
    preferred = translator.registry.prefer_native
    exists = translator.registry.reaches(version)
    if preferred == "always" and not exists:
        raise TranslationError(
            f"ONNX's {target._opname}, which prefer_native='always' asks for, does not exist at opset "
            f"{translator.registry.opset_version}",
            next_step=f"pass opset_version={version} or a higher one, or prefer_native='auto'",
        )
    if not exists or preferred == "never":
        return _decomposed(translator, node, env)
    positional = [argument for argument in target._schema.arguments if not argument.kwarg_only]
    given = {formal.name: argument for formal, argument in zip(positional, node.args, strict=False)}
    attributes: dict[str, object] = {}
    values: list[ir.Value | None] = []
    for formal in target._schema.arguments:
        argument = given.get(formal.name, node.kwargs.get(formal.name, formal.default_value))
        if "Tensor" in str(formal.type):
            values.append(translator.convert(argument, env))
        elif argument is not None and argument != _default(target._opname, formal.name, version):
            attributes[formal.name] = int(argument) if isinstance(argument, bool) else argument
    for heads in _HEADS & attributes.keys():
        if attributes[heads] == 0:
            del attributes[heads]  # not given; from opset 25 on the checker refuses even a zero for inputs of four axes
    while values and values[-1] is None:
        values.pop()
    return _record(translator, node, "", target._opname, values, attributes, version, {})


def _default(operator_name: str, attribute: str, version: int) -> object:
    """What ONNX's operator takes when the attribute is not there; None where it has no such value."""
    declared = onnx.defs.get_schema(operator_name, version, "").attributes.get(attribute)
    if declared is None or not declared.default_value.name:
        return None
    return onnx.helper.get_attribute_value(declared.default_value)


def _symbolic(translator: OperatorTranslator, node: torch.fx.Node, env: Mapping[torch.fx.Node, Any]) -> object:
    inputs, op_type = node.args[0], str(node.args[1])
    values = [translator.convert(argument, env) for argument in inputs]  # type: ignore[union-attr]
    given = node.kwargs
    attributes = _attributes(
        given["attr_keys"],
        given["attr_types"],
        given["attr_pos"],
        given["attr_ints"],
        given["attr_floats"],
        given["attr_strs"],
    )
    properties = dict(
        zip(_strings(given.get("metadata_props_keys")), _strings(given.get("metadata_props_values")), strict=True)
    )
    domain, version = str(given.get("domain") or ""), given.get("version")
    asked: Any = node.args[2]
    dtypes = list(asked) if isinstance(asked, (list, tuple)) else [asked]  # torch has no tensors of some (INT4)
    return _record(translator, node, domain, op_type, values, attributes, version, properties, dtypes)


def _strings(given: Any) -> list[str]:
    return [str(text) for text in given or ()]


def _attributes(keys: Any, types: Any, positions: Any, ints: Any, floats: Any, strings: Any) -> dict[str, Any]:
    """Unpacks the flat lists in which torch encodes attributes: each position is a (start, end) pair of its list."""
    pools = {"i": ints, "is": ints, "f": floats, "fs": floats, "s": strings, "ss": strings}
    attributes: dict[str, Any] = {}
    for key, kind, (start, end) in zip(keys, types, positions, strict=True):
        if kind not in pools:
            raise TranslationError(f"the attribute {key} has the unknown type {kind!r}")
        chosen = list(pools[kind][start:end])
        attributes[key] = chosen if len(kind) == 2 else chosen[0]
    return attributes


def _record(
    translator: OperatorTranslator,
    node: torch.fx.Node,
    domain: str,
    name: str,
    inputs: list[ir.Value | None],
    attributes: Mapping[str, Any],
    version: Any,
    properties: Mapping[str, str],
    dtypes: Sequence[int] = (),
) -> object:
    fakes = node.meta.get("val")
    several = isinstance(fakes, (list, tuple))
    outputs = []
    for index, fake in enumerate(fakes if isinstance(fakes, (list, tuple)) else [fakes]):
        value = RecordedValue(name=translator.recorder.unique_name(f"{node.name}_{index}" if several else node.name))
        translator.describe(value, fake)
        if index < len(dtypes):
            value.type = ir.TensorType(ir.DataType(dtypes[index]))
        outputs.append(value)
    needed = _needed(node, len(outputs)) if several and not domain else len(outputs)
    made = ir.Node(
        domain,
        name,
        inputs,
        ir.convenience.convert_attributes(dict(attributes)),
        outputs=outputs[:needed],
        version=int(version) if version is not None else None if domain else translator.registry.own_version(),
    )
    translator.recorder.append(made)
    made.metadata_props.update(properties)
    label = f"{domain or 'onnx'}::{name}"
    translator.operators[label] = (translator.operators.get(label, (0, ""))[0] + 1, "native")
    return list(outputs) if several else outputs[0]


def _needed(node: torch.fx.Node, count: int) -> int:
    """How many outputs there are up to the last one that is read; ONNX leaves optional ones out."""
    indices = [user.args[1] for user in node.users if user.target is operator.getitem and user.users]
    return max((int(index) + 1 for index in indices), default=count)  # type: ignore[arg-type]


def _decomposed(translator: OperatorTranslator, node: torch.fx.Node, env: Mapping[torch.fx.Node, object]) -> object:
    values = {
        id(argument.meta["val"]): env[argument]
        for argument in node.all_input_nodes
        if isinstance(argument.meta.get("val"), torch.Tensor)
    }
    arguments, keywords = pytree.tree_map(
        lambda leaf: leaf.meta["val"] if isinstance(leaf, torch.fx.Node) else leaf,
        (list(node.args), dict(node.kwargs)),
    )
    return translator.decompose(node.target, arguments, keywords, values, node.name)
