"""The operators of a file that draw random numbers.

An ONNX model arrives; names of operators leave, each with whether it is known to draw. Functions count where something
calls them, and subgraphs with the node that has them. Nothing is run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import onnx
import onnx.numpy_helper

_DEFAULT_DOMAINS = ("", "ai.onnx")
_ALWAYS = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli")
_DROPOUT = "Dropout"
_WORDS = ("random", "dropout", "bernoulli", "multinomial")
"""What names of operators of other domains have in them that may draw."""

Constants = Mapping[str, onnx.TensorProto]


def random_operators(model: onnx.ModelProto) -> dict[str, bool]:
    """Returns the operators that may draw random numbers, sorted by name, and whether each is known to.

    A Dropout draws in training mode alone, and nothing where its ratio is 0; where the file computes these, and of
    operators that the standard has not, nothing is known.
    """
    found: dict[str, bool] = {}
    for name, draws in _drawing(model):
        found[name] = found.get(name, False) or draws
    return dict(sorted(found.items()))


def _drawing(model: onnx.ModelProto) -> Iterator[tuple[str, bool]]:
    functions = {(function.domain, function.name): function for function in model.functions}
    called: set[tuple[str, str]] = set()
    waiting: list[tuple[Any, Constants]] = [(model.graph, {})]
    while waiting:
        body, outer = waiting.pop()
        constants = {**outer, **_constants(body)}
        for node in body.node:
            key = (node.domain, node.op_type)
            if key in functions:
                if key not in called:
                    called.add(key)
                    waiting.append((functions[key], {}))
            elif node.domain in _DEFAULT_DOMAINS:
                draws = node.op_type in _ALWAYS or (_dropped(node, constants) if node.op_type == _DROPOUT else False)
                if draws is not False:
                    yield node.op_type, draws is True
            elif any(word in node.op_type.lower() for word in _WORDS):
                yield f"{node.domain}::{node.op_type}", False
            for attribute in node.attribute:
                graphs = [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs
                waiting.extend((graph, constants) for graph in graphs)


def _constants(body: Any) -> dict[str, onnx.TensorProto]:
    """Initializers and outputs of Constant nodes by name; a function has no initializers."""
    found = {tensor.name: tensor for tensor in getattr(body, "initializer", ())}
    for node in body.node:
        if node.op_type == "Constant" and node.domain in _DEFAULT_DOMAINS:
            found.update((node.output[0], one.t) for one in node.attribute if one.name == "value")
    return found


def _dropped(node: onnx.NodeProto, constants: Constants) -> bool | None:
    """Whether a Dropout draws; None where nothing tells. Without a third input it is in inference mode."""
    if len(node.input) < 3 or not node.input[2]:
        return False
    training, ratio = _value(node.input[2], constants), _value(node.input[1], constants) if node.input[1] else 0.5
    if training == 0 or ratio == 0:
        return False
    return None if training is None or ratio is None else True


def _value(name: str, constants: Constants) -> float | None:
    tensor = constants.get(name)
    if tensor is None or tensor.data_location == onnx.TensorProto.EXTERNAL:
        return None
    value = onnx.numpy_helper.to_array(tensor)
    return float(value.reshape(-1)[0]) if value.size else None
