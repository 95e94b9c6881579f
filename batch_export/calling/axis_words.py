"""Names of axes as words: what is asked for, and what a file can have.

Arrives: the texts that callers give axes. Leaves: for each an identifier, which is the same text wherever it is one. A
text is never read as an expression; only torch's derived `Dim`s and `AxisExpression`s say how axes are related.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from torch.export import Dim
from torch.utils import _pytree as pytree

_NO_WORD = re.compile(r"\W+", re.ASCII)


class AxisExpression(str):
    """A name that is meant as an expression of names, such as `past+seq`."""

    __slots__ = ()


def is_word(name: str) -> bool:
    """Whether a file can have an axis of this name beside expressions of other axes."""
    return name.isidentifier() and name.isascii()


def mended(asked: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """An identifier for each name; names that differ keep differing.

    Args:
        asked: names, some of which may be no identifiers.
        taken: further identifiers that must not come up.
    """
    names = list(dict.fromkeys(asked))
    used = {*(name for name in names if is_word(name)), *taken}
    found: dict[str, str] = {}
    for name in names:
        word = name
        if not is_word(name):
            word = _NO_WORD.sub("_", name).strip("_") or "axis"
            word = word if word.isidentifier() else f"axis_{word}"
            stem, number = word, 1
            while word in used:
                number += 1
                word = f"{stem}_{number}"
            used.add(word)
        found[name] = word
    return found


def of_tree(dynamic_shapes: Any) -> dict[str, str]:
    """The same for every name in a tree of dynamic shapes."""
    leaves = pytree.tree_leaves(dynamic_shapes, is_leaf=lambda one: isinstance(one, Dim))
    names = [one for one in leaves if isinstance(one, str) and one and not isinstance(one, AxisExpression)]
    return mended(names, [str(one.__name__) for one in leaves if isinstance(one, Dim)])


def in_words(changed: Mapping[str, str]) -> str:
    """What became of names that were no identifiers; empty where all were."""
    others = [f"{name!r} is called {word!r}" for name, word in changed.items() if name != word]
    return ", ".join(others)
