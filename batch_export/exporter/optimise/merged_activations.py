"""The approximation of Gelu by a hyperbolic tangent, written out by a model, as the operator that ONNX has for it.

Arrives: the copy of a model that is written to a file. Leaves: the same model, changed in place, at an opset that has
the operator (20): `0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)))` is one node in place of eight, also
where the cube is two products. Its definition is this formula. Runtimes recognise it as well, one or the other form.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from batch_export.exporter.optimise.edits import insert, known, only_use
from batch_export.legalise.nested import graphs_of

_OPSET = 20
_ROOT, _CUBIC = math.sqrt(2 / math.pi), 0.044715
_CLOSE = 1e-6
"""How far a constant may be from the formula's, which models write with some digits or in float32."""


def merge(model: ir.Model) -> int:
    """Merges in place; returns how many activations became one node."""
    if model.opset_imports.get("", 0) < _OPSET:
        return 0
    return sum(
        _merge(node)
        for graph in graphs_of(model.graph)
        for node in [one for one in graph if one.op_type == "Mul" and not one.domain]
    )


def _merge(node: ir.Node) -> int:
    """A product of half of a value and one more than a tangent of it."""
    if node.graph is None or node.outputs[0].dtype != ir.DataType.FLOAT:
        return 0
    for half, rest in _pairs(node):
        data = _times(half, 0.5)
        tanh = only_use(_plus(rest, 1.0), "Tanh")
        if data is None or tanh is None:
            continue
        inner = _times(tanh.inputs[0], _ROOT)
        if inner is not None and _is_cubic(inner, data):
            insert(node, "Gelu", [data], {"approximate": "tanh"}, [node])
            return 1
    return 0


def _is_cubic(value: ir.Value, data: ir.Value) -> bool:
    """Whether a value is data + 0.044715 * data ** 3."""
    total = only_use(value, "Add")
    if total is None:
        return False
    return any(one is data and _is_cube(_factors(other), data) for one, other in _pairs(total))


def _is_cube(factors: list[ir.Value], data: ir.Value) -> bool:
    """Whether the factors are 0.044715 and three times the data, or its third power."""
    others = [one for one in factors if one is not data]
    numbers = [one for one in others if _is_number(one, _CUBIC)]
    powers = [power for one in others if one not in numbers and (power := only_use(one, "Pow")) is not None]
    if len(numbers) != 1 or len(numbers) + len(powers) != len(others):
        return False
    if not powers:
        return len(factors) == 4
    return len(factors) == 2 and powers[0].inputs[0] is data and _is_number(powers[0].inputs[1], 3.0)


def _factors(value: ir.Value | None, most: int = 4) -> list[ir.Value]:
    """What a value is the product of; further products of it that others read are factors themselves."""
    product = only_use(value, "Mul")
    if product is None or most < 2:
        return [] if value is None else [value]
    return [part for one in product.inputs for part in _factors(one, most - 1)]


def _pairs(node: ir.Node) -> list[tuple[ir.Value | None, ir.Value | None]]:
    """Both operands in both orders."""
    first, second = node.inputs
    return [(first, second), (second, first)]


def _times(value: ir.Value | None, number: float) -> ir.Value | None:
    """What is multiplied with a number, and read nowhere else as such; None where it is not."""
    return _beside(only_use(value, "Mul"), number)


def _plus(value: ir.Value | None, number: float) -> ir.Value | None:
    return _beside(only_use(value, "Add"), number)


def _beside(node: ir.Node | None, number: float) -> ir.Value | None:
    for one, other in [] if node is None else _pairs(node):
        if _is_number(other, number):
            return one
    return None


def _is_number(value: ir.Value | None, number: float) -> bool:
    content = known(value)
    return content is not None and content.size == 1 and math.isclose(float(content.item()), number, rel_tol=_CLOSE)
