"""The leaves of a tree of containers with the path to each, also through classes registered without keys.

A tree arrives, pairs of a path and a leaf leave. torch (2.13) refuses to tell paths where one class within was
registered without the keys of its children, though it flattens it; diffusers' outputs are such.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch.utils import _pytree as pytree


def leaves_with_paths(tree: Any) -> list[tuple[tuple[Any, ...], Any]]:
    """Returns the leaves in torch's order, each with the keys that lead to it.

    Children of a class without keys have those that it has as a mapping, or their positions.
    """
    try:
        return pytree.tree_flatten_with_path(tree)[0]
    except ValueError:  # a class registered without keys
        return list(_walked((), tree))


def _walked(path: tuple[Any, ...], tree: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    children, form = pytree.tree_flatten(tree, is_leaf=lambda one: one is not tree)
    if form.is_leaf():
        yield path, tree
        return
    for key, child in zip(_keys(tree, len(children)), children, strict=True):
        yield from _walked((*path, key), child)


def _keys(tree: Any, count: int) -> list[Any]:
    try:
        return [path[0] for path, _ in pytree.tree_flatten_with_path(tree, is_leaf=lambda one: one is not tree)[0]]
    except ValueError:
        if isinstance(tree, Mapping) and len(tree) == count:
            return [pytree.MappingKey(name) for name in tree]
        return [pytree.SequenceKey(place) for place in range(count)]
