"""The inputs of an exported program, as it was captured: names, dtypes, and which sizes are symbols.

A program arrives, leaves with names of axes in their shapes leave, and a size for each axis. Nothing is run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from batch_export.errors import ModelError
from batch_export.spec import InputSpec
from batch_export.stages.probe.examples import described
from batch_export.stages.probe.free_axes import named_places

_UNKNOWN = 2
"""Size of an axis of which the program keeps none."""


def inputs_of(program: torch.export.ExportedProgram) -> tuple[list[InputSpec], dict[str, int]]:
    """Returns the leaves, and example sizes by axis.

    Raises:
        ModelError: the program does not say what it takes, or a size is computed from others in a way that no config
            can write.
    """
    signature = program.module_call_graph[0].signature if program.module_call_graph else None
    if signature is None:
        raise ModelError("the program does not say what it takes. Next step: describe each input with --input")
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    values = [
        nodes[name].meta.get("val") if isinstance(name, str) else name for name in program.graph_signature.user_inputs
    ]
    args, kwargs = pytree.tree_unflatten(list(range(len(values))), signature.in_spec)
    names = list(signature.forward_arg_names or [])
    placed = {**dict(zip(names, args, strict=False)), **kwargs}
    leaves: list[InputSpec] = []
    symbols: dict[str, int] = {}
    for path, place in _places((), placed):
        value = values[place]
        leaves.append(_leaf(path, value, symbols))
    words = named_places(leaves, list(symbols))
    renamed = [replace(leaf, shape=tuple(_renamed(entry, words) for entry in leaf.shape)) for leaf in leaves]
    return _with_values(program, renamed), {words[name]: size for name, size in symbols.items()}


def _places(path: tuple[str | int, ...], tree: Any) -> list[tuple[tuple[str | int, ...], int]]:
    if isinstance(tree, int):
        return [(path, tree)]
    if isinstance(tree, dict):
        return [one for key, value in tree.items() for one in _places((*path, str(key)), value)]
    if isinstance(tree, list | tuple):
        return [one for index, value in enumerate(tree) for one in _places((*path, index), value)]
    raise ModelError(f"the program takes a {type(tree).__name__}, which is not described here. Next step: use --input")


def _leaf(path: tuple[str | int, ...], value: Any, symbols: dict[str, int]) -> InputSpec:
    if not isinstance(value, torch.Tensor):
        return InputSpec(path, constant=value if isinstance(value, bool | int | float | str) else None)
    shape = tuple(_entry(size, symbols) for size in value.shape)
    return InputSpec(path, str(value.dtype).removeprefix("torch."), shape)


def _entry(size: Any, symbols: dict[str, int]) -> int | str:
    if isinstance(size, int):
        return size
    expression = size.node.expr
    text = str(expression).replace(" ", "")
    if not all(part.isidentifier() or part.isdigit() for part in text.split("+")):
        raise ModelError(f"a size of the program is {text}, which no config can write. Next step: use --input")
    for symbol in expression.free_symbols:
        hint = size.node.hint if expression == symbol else None
        if str(symbol) not in symbols or hint is not None:
            symbols[str(symbol)] = _UNKNOWN if hint is None else int(hint)
    return text


def _renamed(entry: int | str, words: dict[str, str]) -> int | str:
    return entry if isinstance(entry, int) else "+".join(words.get(part, part) for part in entry.split("+"))


def _with_values(program: torch.export.ExportedProgram, leaves: list[InputSpec]) -> list[InputSpec]:
    """Ranges of whole numbers from the inputs that the program keeps from its capture, where it does."""
    if program.example_inputs is None:
        return leaves
    kept = pytree.tree_leaves(program.example_inputs)
    if len(kept) != len(leaves):
        return leaves
    made = []
    for leaf, value in zip(leaves, kept, strict=True):
        if leaf.dtype and isinstance(value, torch.Tensor):
            seen = described(leaf.path, value)
            leaf = replace(leaf, low=seen.low, high=seen.high, fill=seen.fill)
        made.append(leaf)
    return made
