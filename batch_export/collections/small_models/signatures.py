"""Guesses at a call, from the names of forward's parameters and what each of them may be given.

A signature and a function from names to options arrive; attempts leave, the fullest first. Nothing is called here.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from batch_export.collections.small_models.leaves import EXAMPLES, Attempt, Leaf

_MOST = 64
"""Attempts with one choice of parameters."""


@dataclass(frozen=True, slots=True)
class Constant:
    """An argument that is no tensor, or one of whole numbers that a program computes sizes from (`is_tensor`)."""

    value: Any
    is_tensor: bool = False


Option = Leaf | Constant
Options = Callable[[str], Sequence[Option]]


def attempts(
    parameters: Mapping[str, inspect.Parameter],
    options: Options,
    wanted: Collection[str] = (),
    sizes: Mapping[str, int] | None = None,
    also: Sequence[str] = (),
) -> Iterator[Attempt]:
    """Yields guesses, the fullest first, and among those the likeliest options first.

    Args:
        parameters: of forward, without `self`.
        options: what a parameter of a name may be given, the likeliest first; nothing where it is unknown.
        wanted: parameters that are given where forward has them, although it need not be given them.
        sizes: example sizes of axes beside `leaves.EXAMPLES`.
        also: further parameters to give, such as those that an error named.
    """
    every = {**EXAMPLES, **(sizes or {})}
    plain = {name: one for name, one in parameters.items() if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)}
    needed = [name for name, one in plain.items() if one.default is one.empty]
    fuller = [name for name in plain if name in wanted and name not in needed]
    known = [name for name in also if name in plain]
    seen: list[set[str]] = []
    for chosen in ([*needed, *fuller, *known], [*needed, *known], needed):
        if set(chosen) in seen:
            continue
        seen.append(set(chosen))
        found = {name: list(options(name)) for name in plain if name in chosen}
        if any(not found[name] for name in needed):
            return
        choices = {name: there for name, there in found.items() if there}
        ranks = sorted(
            itertools.islice(itertools.product(*(range(len(one)) for one in choices.values())), 4 * _MOST), key=sum
        )
        for rank in ranks[:_MOST]:
            given = {name: choices[name][at] for name, at in zip(choices, rank, strict=True)}
            yield _attempt(given, every)


def unknown(parameters: Mapping[str, inspect.Parameter], options: Options) -> list[str]:
    """Returns the parameters that have to be given and that no option is known for."""
    return [
        name
        for name, one in parameters.items()
        if one.default is one.empty and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL) and not options(name)
    ]


def _attempt(given: Mapping[str, Option], sizes: Mapping[str, int]) -> Attempt:
    leaves = {name: one for name, one in given.items() if isinstance(one, Leaf)}
    named = {entry for leaf in leaves.values() for entry in leaf.shape if isinstance(entry, str)}
    plain = {name: one for name, one in given.items() if isinstance(one, Constant)}
    return Attempt(
        leaves,
        {name: size for name, size in sizes.items() if name in named},
        fixed={name: one.value for name, one in plain.items() if one.is_tensor},
        constants={name: one.value for name, one in plain.items() if not one.is_tensor},
    )
