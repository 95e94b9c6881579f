"""Eager run with another's choices among equal scores: what top-k, sort or argmax picks where scores tie is arbitrary.

Indices that a file computed arrive; while the mode is on, each selection of eager's is held against them. Where some
of them pick, under eager's own scores and within rounding, scores as good in the same order, and no element twice,
eager goes on with these; everywhere else with its own. A choice of worse scores is therefore never taken, nor one that
eager's definition rules out: `argmax`, `max` and stable sorts take the first of exactly equal scores.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from batch_export.numbers.values import Array
from batch_export.stages.models_line import is_torchs

_UNITS = 64
"""Scores of float32 and float64 tie within this many units in the last place of their row's largest number: what
layers before them round differently in a file."""
_ROUGH_UNITS = 4
"""The same of float16 and bfloat16."""


@dataclass(frozen=True, slots=True)
class _Selection:
    """How an operator selects.

    Attributes:
        dim: along which axis; None: among all elements.
        keeps: whether that axis is still there in the indices.
        ordered: whether the order of what was selected says something.
        first: whether the first of exactly equal scores is taken, so that these do not tie.
    """

    dim: int | None
    keeps: bool
    ordered: bool
    first: bool


def _read(named: Mapping[str, Any], *, first: bool, keeps: bool | None = None) -> _Selection:
    kept = bool(named.get("keepdim", False)) if keeps is None else keeps
    return _Selection(named["dim"], kept, bool(named.get("sorted", True)), first)


_ATEN = torch.ops.aten
_SELECTIONS: dict[Any, Callable[[Mapping[str, Any]], _Selection]] = {
    _ATEN.topk.default: lambda named: _read(named, first=False, keeps=True),
    _ATEN.sort.default: lambda named: _read(named, first=False, keeps=True),
    _ATEN.sort.stable: lambda named: _read(named, first=bool(named.get("stable")), keeps=True),
    _ATEN.max.dim: lambda named: _read(named, first=True),
    _ATEN.min.dim: lambda named: _read(named, first=True),
    _ATEN.argmax.default: lambda named: _read(named, first=True),
    _ATEN.argmin.default: lambda named: _read(named, first=True),
}


class FileChoices(TorchDispatchMode):
    """Takes a file's choices wherever they are as good as eager's own.

    Args:
        candidates: indices that the file computed, in the order of its nodes.

    Attributes:
        taken: a sentence for each selection that was taken otherwise than eager would: operator, line, rows, and how
            far apart the scores are.
    """

    def __init__(self, candidates: Sequence[Array]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._left = [torch.from_numpy(np.asarray(one, dtype=np.int64)) for one in candidates]
        self.taken: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Runs an operator; of one that selects, perhaps with other indices."""
        returned = func(*args, **(kwargs or {}))
        read = _SELECTIONS.get(func)
        if read is None:
            return returned
        named = _named(func, args, kwargs or {})
        scores = named["self"]
        values, indices = returned if isinstance(returned, tuple | list) else (None, returned)
        if scores.dim() == 0 or not indices.numel() or scores.is_complex():
            return returned
        how = read(named)
        table, eagers = _rows(scores, indices, how)
        for position, candidate in enumerate(self._left):
            if candidate.numel() != indices.numel():
                continue
            files = _in_rows(candidate.reshape(indices.shape), how)
            gap = gap_of(table, eagers, files, ordered=how.ordered, first=how.first)
            if gap is None:
                continue
            del self._left[position]
            changed = int((files != eagers).any(-1).sum())
            if not changed:
                return returned
            name = str(func).removeprefix("aten.").partition(".")[0]
            self.taken.append(f"{name}{_line()}: {changed} of {len(files)} rows, scores apart by at most {gap:.2g}")
            chosen = candidate.reshape(indices.shape).to(indices)
            return chosen if values is None else type(returned)((_picked(scores, chosen, how).to(values), chosen))
        return returned


def gap_of(
    scores: torch.Tensor, eagers: torch.Tensor, files: torch.Tensor, *, ordered: bool, first: bool
) -> float | None:
    """Returns how far apart the scores of two choices are; None where the file's is not as good as eager's.

    Args:
        scores: `[rows, elements]`, eager's.
        eagers: `int64[rows, k]`, what eager chose.
        files: `int64[rows, k]`, what the file chose.
        ordered: whether the order of what was chosen counts.
        first: whether of exactly equal scores the first has to be taken.
    """
    if bool(((files < 0) | (files >= scores.shape[-1])).any()):
        return None
    in_order = files.sort(-1).values
    if bool((in_order[:, 1:] == in_order[:, :-1]).any()):
        return None
    wide = scores.to(torch.float64) if scores.is_floating_point() else scores.to(torch.int64)
    mine, theirs = wide.gather(-1, eagers), wide.gather(-1, files)
    if scores.is_floating_point() and bool(wide.isnan().any()):
        return None
    if first and bool(((mine == theirs) & (files != eagers)).any()):
        return None
    if not ordered:
        mine, theirs = mine.sort(-1).values, theirs.sort(-1).values
    if not scores.is_floating_point():
        return 0.0 if torch.equal(mine, theirs) else None
    apart = torch.where(mine == theirs, 0.0, (mine - theirs).abs())
    largest = torch.where(wide.isfinite(), wide.abs(), 0.0).amax(-1, keepdim=True)
    rough = scores.dtype in (torch.float16, torch.bfloat16)
    band = largest * torch.finfo(scores.dtype).eps * (_ROUGH_UNITS if rough else _UNITS)
    return float(apart.max()) if bool((apart <= band).all()) else None


def _named(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an operator's arguments by name, defaults included."""
    parameters = func._schema.arguments
    named = {parameter.name: parameter.default_value for parameter in parameters if parameter.has_default_value()}
    return named | {parameter.name: value for parameter, value in zip(parameters, args, strict=False)} | dict(kwargs)


def _rows(scores: torch.Tensor, indices: torch.Tensor, how: _Selection) -> tuple[torch.Tensor, torch.Tensor]:
    table = scores.reshape(1, -1) if how.dim is None else scores.movedim(how.dim, -1)
    return table.reshape(-1, table.shape[-1]), _in_rows(indices, how)


def _in_rows(indices: torch.Tensor, how: _Selection) -> torch.Tensor:
    """Returns indices as `[rows, k]`."""
    if how.dim is None or not how.keeps:
        return indices.reshape(-1, 1)
    moved = indices.movedim(how.dim, -1)
    return moved.reshape(-1, moved.shape[-1])


def _picked(scores: torch.Tensor, chosen: torch.Tensor, how: _Selection) -> torch.Tensor:
    dim = how.dim or 0
    return scores.gather(dim, chosen) if how.keeps else scores.gather(dim, chosen.unsqueeze(dim)).squeeze(dim)


def _line() -> str:
    """Returns the line outside torch and this package from which an operator is called."""
    for frame, line in traceback.walk_stack(None):
        name = frame.f_code.co_filename
        if not is_torchs(name) and name != __file__:
            return f" at {name}:{line}"
    return ""
