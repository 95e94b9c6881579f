"""The loss of connectionist temporal classification, as one scan over time.

Arrives: a call of `torch.ctc_loss` or `torch.nn.functional.ctc_loss`. Leaves: its result, computed by operators that a
capture can follow. torch's own operator keeps a table whose size is data, so that no capture takes it. The forward
variables are those of Graves et al. (2006), equations 6 and 7, as logarithms: before the first step all likelihood is
at the first blank, so that the recursion gives its own start, and a text without time keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.scan import scan

_REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}
_NOTHING = float("-inf")


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: str | int = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """The result of `torch.nn.functional.ctc_loss`, or of `torch.ctc_loss`, in which reductions are numbers.

    Args:
        log_probs: `float[time, batch, classes]`, or `float[time, classes]`.
        targets: `int[batch, length]`, or all texts one behind the other.
        input_lengths, target_lengths: of each text.
        blank, reduction, zero_infinity: as torch has them.
    """
    is_batched = log_probs.dim() == 3
    if not is_batched:
        log_probs, targets = log_probs.unsqueeze(1), targets.unsqueeze(0)
    times, lengths = _lengths(input_lengths, log_probs), _lengths(target_lengths, log_probs)
    found = _of_each(log_probs, _in_rows(targets, lengths), times, lengths, blank)
    if zero_infinity:
        found = torch.where(found == float("inf"), torch.zeros_like(found), found)
    wanted = _REDUCTIONS.get(reduction, "") if isinstance(reduction, int) else reduction
    if wanted == "mean":
        return (found / lengths.clamp_min(1).to(found.dtype)).mean()
    return found.sum() if wanted == "sum" else found if is_batched else found.squeeze(0)


def _lengths(given: Any, log_probs: Tensor) -> Tensor:
    found = given if isinstance(given, Tensor) else torch.as_tensor(given)
    return found.to(torch.int64).to(log_probs.device).reshape(-1)


def _in_rows(targets: Tensor, lengths: Tensor) -> Tensor:
    """Targets that stand one behind the other, each in a row of its own, filled up with others."""
    if targets.dim() == 2:
        return targets.to(torch.int64)
    places = (lengths.cumsum(0) - lengths).unsqueeze(1) + torch.arange(targets.shape[0], device=targets.device)
    return targets.to(torch.int64)[places.clamp_max(targets.shape[0] - 1)]


def _of_each(log_probs: Tensor, targets: Tensor, times: Tensor, lengths: Tensor, blank: int) -> Tensor:
    """The loss of each text, `float[batch]`."""
    batch = log_probs.shape[1]
    labels = targets.clamp(0, log_probs.shape[2] - 1).unsqueeze(2)  # what fills a row up may be anything
    blanks = torch.full_like(labels, blank)
    first = blanks.new_full((batch, 1), blank)
    symbols = torch.cat([first, torch.cat([labels, blanks], 2).flatten(1)], 1)
    before = torch.cat([first, first, symbols], 1)[:, :-2]
    skipping = torch.zeros_like(symbols, dtype=log_probs.dtype).masked_fill(symbols == before, _NOTHING)
    emitted = log_probs.gather(2, symbols.unsqueeze(0).expand(log_probs.shape[0], -1, -1))
    goes_on = torch.arange(log_probs.shape[0], device=times.device).unsqueeze(1) < times
    start = torch.zeros_like(skipping)
    start = torch.cat([start[:, :1], start[:, 1:] + _NOTHING], 1)

    def step(carried: list[Tensor], one: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        (likelihood, skips), (emission, is_on) = carried, one
        nothing = torch.full_like(likelihood[:, :1], _NOTHING)
        by_one = torch.cat([nothing, likelihood], 1)[:, :-1]
        by_two = torch.cat([nothing, nothing, likelihood], 1)[:, :-2] + skips
        reached = torch.logaddexp(torch.logaddexp(likelihood, by_one), by_two) + emission
        return [torch.where(is_on.unsqueeze(1), reached, likelihood), skips.clone()], [is_on.clone()]

    (likelihood, _), _ = scan(step, [start, skipping], [emitted, goes_on], dim=0)
    last = (2 * lengths).unsqueeze(1)
    at_blank = likelihood.gather(1, last).squeeze(1)
    at_label = likelihood.gather(1, (last - 1).clamp_min(0)).squeeze(1)
    at_label = torch.where(lengths > 0, at_label, torch.full_like(at_label, _NOTHING))
    return -torch.logaddexp(at_label, at_blank)
