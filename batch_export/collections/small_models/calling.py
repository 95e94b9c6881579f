"""A module called with guesses at its inputs: the first that eager takes, and the axes that eager accepts to vary.

A function that makes the module and attempts arrive; what a file of `conf/model/` says of inputs and axes leaves. An
error that eager ends in is read for what to try next (`errors_read.py`, `repairs.py`), and eager has the last word.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from batch_export.collections.small_models.errors_read import arguments_missed
from batch_export.collections.small_models.further_repairs import further_repaired
from batch_export.collections.small_models.leaves import Attempt, Leaf
from batch_export.collections.small_models.repairs import repaired
from batch_export.words import class_and_line

MOST_PARAMETERS = 50_000_000
_MOST_REPAIRS = (12, 40)
_ROUNDS = (3, 8)
"""Of a first search, and of one that is persistent."""
_MOST_CALLS = 64
"""Of a model in one round of a persistent search."""
_MOST_ERRORS = 6


class UndescribedError(Exception):
    """A class that no small model with inputs was found for.

    Attributes:
        causes: what the model raised, each message once.
    """

    def __init__(self, message: str, causes: Sequence[Exception] = ()) -> None:
        super().__init__(message)
        self.causes = tuple(causes)


@dataclass(frozen=True, slots=True)
class Made:
    """A module and the guess that it was called with.

    Attributes:
        module: in eval mode.
        attempt: what eager took.
        extra: arguments of its builder that the guess asked for.
    """

    module: nn.Module
    attempt: Attempt
    extra: Mapping[str, Any]


def refuse_large(model: nn.Module) -> None:
    """Raises an `UndescribedError` for a module, which may be on the meta device, with too many parameters."""
    count = sum(parameter.numel() for parameter in model.parameters())
    if count > MOST_PARAMETERS:
        raise UndescribedError(f"it has {count:,} parameters, and at most {MOST_PARAMETERS:,} are built")


def first_taken(
    make: Callable[[Attempt], tuple[nn.Module, Mapping[str, Any]]],
    attempts: Callable[[Sequence[str]], Iterator[Attempt]],
    parameters: Collection[str],
    never: Collection[str] = (),
    *,
    persistent: bool = False,
) -> Made:
    """Returns the first guess that eager takes, with the module that took it.

    Args:
        make: the module for an attempt, and the arguments of its builder that the attempt asked for.
        attempts: guesses that give the named parameters, too; called again with those that an error named.
        parameters: names of the parameters of forward.
        never: those that are not given because an error names them.
        persistent: for a model that nothing was found for: more is read from errors, more often, and the model has to
            return the same twice.

    Raises:
        UndescribedError: eager takes none; it quotes what the first attempt ended in.
    """
    repairs: list[Attempt] = []
    first = ""
    causes: dict[str, Exception] = {}
    most = _MOST_REPAIRS[persistent]
    rounds: list[list[str]] = [[]]
    for also in rounds:
        named: list[str] = []
        waiting: list[Attempt] = []
        tried = _and(waiting, attempts(also))
        for attempt in itertools.islice(tried, _MOST_CALLS) if persistent else tried:
            try:
                module, extra = make(attempt)
                outputs = _run(module, attempt, attempt.sizes)
                _refuse_nothing(outputs)
                if persistent:
                    _refuse_others(outputs, _run(module, attempt, attempt.sizes))
                    if attempt.sizes and not free_axes(Made(module, attempt, extra)):
                        raise UndescribedError("eager takes it at one size alone")
                return Made(module, attempt, extra)
            except Exception as error:
                first = first or class_and_line(error)
                if persistent and len(causes) < _MOST_ERRORS:  # each holds what its frames held
                    causes.setdefault(str(error), error)
                given = (*attempt.leaves, *attempt.fixed, *attempt.constants)
                named += [name for name in arguments_missed(error, parameters) if name not in given]
                known = repaired(attempt, error) if len(repairs) < most else None
                others = [known] if known is not None else []
                for other in [*others, *(further_repaired(attempt, error) if persistent else ())]:
                    if other not in repairs and len(repairs) < most:
                        repairs.append(other)
                        waiting.append(other)
        fresh = [name for name in dict.fromkeys(named) if name not in also and name not in never]
        alone = [[*also, name] for name in fresh] if persistent and len(fresh) > 1 else []
        for names in [[*also, *fresh], *alone]:
            if names not in rounds and len(rounds) < _ROUNDS[persistent]:
                rounds.append(names)
    raise UndescribedError(f"no inputs were found ({first})", list(causes.values())[:_MOST_ERRORS])


def _and(waiting: list[Attempt], attempts: Iterator[Attempt]) -> Iterator[Attempt]:
    """Attempts, and after each those that wait by then."""
    for attempt in attempts:
        yield attempt
        while waiting:
            yield waiting.pop(0)


def written(made: Made) -> dict[str, Any]:
    """Returns `inputs` and `axes` of a configuration; axes that eager refuses to vary are written as sizes."""
    sizes = made.attempt.sizes
    axes = free_axes(made)
    leaves = {name: _bound(leaf, sizes, axes) for name, leaf in made.attempt.leaves.items()}
    return {
        "inputs": {name: leaf.config() for name, leaf in leaves.items()},
        "axes": {name: {"example": sizes[name], "check": list(checks)} for name, checks in axes.items()},
    }


def tensors(leaves: Mapping[str, Leaf], sizes: Mapping[str, int]) -> dict[str, torch.Tensor]:
    """Returns seeded tensors for the leaves at the sizes of their axes."""
    return {name: _tensor(leaf, sizes, index) for index, (name, leaf) in enumerate(leaves.items())}


def _tensor(leaf: Leaf, sizes: Mapping[str, int], seed: int) -> torch.Tensor:
    shape = [sizes[entry] if isinstance(entry, str) else entry for entry in leaf.shape]
    dtype = getattr(torch, leaf.dtype)
    if leaf.fill is not None:
        return torch.full(shape, leaf.fill, dtype=dtype)
    generator = torch.Generator().manual_seed(seed)
    if leaf.high is not None:
        return torch.randint(leaf.low or 0, leaf.high, shape, generator=generator).to(dtype)
    return torch.randn(shape, generator=generator).to(dtype)


def _run(module: nn.Module, attempt: Attempt, sizes: Mapping[str, int]) -> list[torch.Tensor]:
    with torch.no_grad():
        result = module(**tensors(attempt.leaves, sizes))
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def _refuse_nothing(outputs: Sequence[torch.Tensor]) -> None:
    if not outputs:
        raise UndescribedError("it returns no tensor")
    for output in outputs:
        if output.is_floating_point() and output.numel() and not bool(torch.isfinite(output).any()):
            raise UndescribedError("an output has no finite value")


def _refuse_others(outputs: Sequence[torch.Tensor], again: Sequence[torch.Tensor]) -> None:
    same = len(outputs) == len(again) and all(
        one.shape == other.shape and torch.allclose(one, other, equal_nan=True)
        for one, other in zip(outputs, again, strict=True)
    )
    if not same:
        raise UndescribedError("it returns something else the second time")


def free_axes(made: Made) -> dict[str, tuple[int, ...]]:
    """The axes that eager accepts to vary, alone and together, with the sizes at which they are checked.

    One by which the number of outputs goes is none: a file has as many as it has.
    """
    sizes = made.attempt.sizes
    count = _outputs(made, sizes)
    free: dict[str, tuple[int, ...]] = {}
    for name, size in sizes.items():
        checks = tuple(check for check in _checks(name, size) if _outputs(made, {**sizes, name: check}) == count)
        if len(checks) == 2:
            free[name] = checks
    while free and any(_outputs(made, {**sizes, **{n: c[i] for n, c in free.items()}}) != count for i in range(2)):
        free.popitem()
    return free


def _checks(name: str, size: int) -> tuple[int, ...]:
    if name == "batch":
        return (1, 3)
    if name in ("height", "width"):
        return (size * 3 // 2, size * 2) if name == "height" else (size * 2, size * 3 // 2)
    return (size + 4, max(2, size - 3)) if size < 100 else (size + size // 4, size * 2)


def _outputs(made: Made, sizes: Mapping[str, int]) -> int:
    """How many tensors a model gives at some sizes; 0 where it refuses them."""
    try:
        outputs = _run(made.module, made.attempt, sizes)
        _refuse_nothing(outputs)
    except Exception:
        return 0
    return len(outputs)


def _bound(leaf: Leaf, sizes: Mapping[str, int], free: Mapping[str, Any]) -> Leaf:
    shape = tuple(sizes[entry] if isinstance(entry, str) and entry not in free else entry for entry in leaf.shape)
    return replace(leaf, shape=shape)
