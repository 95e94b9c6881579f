"""Runs a module once at given inputs, and says what came out or why nothing did.

Inputs arrive as specs whose shapes are numbers; shapes and dtypes of the outputs leave. The module is left as it was.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from batch_export.calling.tree_paths import leaves_with_paths
from batch_export.spec import InputSpec, ModelSpec
from batch_export.stages.failures import short_line
from batch_export.stages.model import example_inputs
from batch_export.stages.state import ModuleState
from batch_export.words import class_and_line


@dataclass(frozen=True, slots=True)
class Output:
    """A tensor that came out."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Trial:
    """What one run came to.

    Attributes:
        outputs: the tensors, in order.
        tree: how they were nested, as text.
        error: the model's own, shortened to a line; empty when it ran.
        ranges: for inputs that an embedding looked up, by place: how many rows it has.
    """

    outputs: tuple[Output, ...] = ()
    tree: str = ""
    error: str = ""
    ranges: tuple[tuple[int, int], ...] = ()

    @property
    def ran(self) -> bool:
        """Whether there was no exception."""
        return not self.error

    def is_like(self, other: Trial) -> bool:
        """Whether as many tensors of as many axes came out, nested alike."""
        ranks = [len(one.shape) for one in self.outputs]
        return self.ran and self.tree == other.tree and ranks == [len(one.shape) for one in other.outputs]


def run(module: torch.nn.Module, leaves: Sequence[InputSpec]) -> Trial:
    """Runs the module in eager at drawn values of these shapes."""
    spec = ModelSpec("probe", "", {}, tuple(leaves))
    state = ModuleState(module)
    hooks: list[Any] = []
    seen: dict[int, int] = {}
    try:
        kwargs = example_inputs(spec, {})
        places = {id(_at(kwargs, leaf.path)): place for place, leaf in enumerate(leaves) if leaf.dtype}
        hooks = _watch(module, places, seen)
        with torch.no_grad():
            result = module(**kwargs)
        tensors = [(path, one) for path, one in leaves_with_paths(result) if isinstance(one, torch.Tensor)]
        outputs = tuple(
            Output(_named(path, place), str(one.dtype).removeprefix("torch."), tuple(map(int, one.shape)))
            for place, (path, one) in enumerate(tensors)
        )
        return Trial(outputs, str(pytree.tree_structure(result)), ranges=tuple(seen.items()))
    except Exception as error:
        return Trial(error=short_line(class_and_line(error)))
    finally:
        for hook in hooks:
            hook.remove()
        state.restore()


def signature_of(module: torch.nn.Module) -> str:
    """The forward of a module as its author wrote it, for messages."""
    if isinstance(module, torch.jit.ScriptModule):
        return f"forward({', '.join(f'{one.name}: {one.type}' for one in schema_of(module))})"
    try:
        signature = inspect.signature(module.forward)
    except (TypeError, ValueError):
        return "forward"
    return f"forward{signature.replace(return_annotation=signature.empty)}"


def schema_of(module: torch.jit.ScriptModule) -> list[Any]:
    """The arguments of a scripted forward, without the module itself."""
    return list(module._c._get_method("forward").schema.arguments)[1:]


def _watch(module: torch.nn.Module, places: dict[int, int], seen: dict[int, int]) -> list[Any]:
    if isinstance(module, torch.jit.ScriptModule):
        return []

    def note(part: torch.nn.Module, args: tuple[Any, ...]) -> None:
        place = places.get(id(args[0])) if args else None
        if place is not None and isinstance(part, torch.nn.Embedding | torch.nn.EmbeddingBag):
            seen[place] = min(seen.get(place, part.num_embeddings), part.num_embeddings)

    kinds = torch.nn.Embedding | torch.nn.EmbeddingBag
    return [part.register_forward_pre_hook(note) for part in module.modules() if isinstance(part, kinds)]


def _at(tree: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        tree = tree[step]
    return tree


def _named(path: Sequence[Any], place: int) -> str:
    words = [str(getattr(step, "key", getattr(step, "name", getattr(step, "idx", "")))) for step in path]
    return "_".join(filter(None, words)) if any(not word.isdigit() for word in words) else f"output {place}"
