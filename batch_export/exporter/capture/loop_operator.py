"""A loop over a free size as one operator, while torch captures a model.

Arrives: the loop, which `free_loops.py` has found to be one. Leaves: what goes on behind its last round; the lists and
tensors that it fills hold what its rounds give.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.exc import UncapturedHigherOrderOpError
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils import _pytree as pytree

from batch_export.exporter.capture import loop_pieces, loop_reasons, loop_scans
from batch_export.exporter.capture.begun_numbers import says_of_none
from batch_export.exporter.capture.free_sequences import FreeNumbers, FreeRows, Run
from batch_export.exporter.capture.kept_rows import note_read
from batch_export.exporter.capture.loop_pieces import LoopPieces
from batch_export.exporter.capture.loop_reach import Place, Reach
from batch_export.exporter.capture.module_states import ModuleStates

Along = tuple[Any, int, Place, bool]
"""A tensor, the axis along which the loop goes, how many places behind the step's, or the place by the step, and
whether it is written to there."""
Written = tuple[Any, int, Place, bool]
"""The same of what is written to, and whether what is given is added to what is there."""


@dataclass(frozen=True, slots=True)
class FreeLoop:
    """A loop over a free size as one operator.

    Attributes:
        body: a round; takes what goes on, the slices, the step as a tensor and whether it is the first one; gives what
            goes on, and what it appends and writes.
        over: the steps.
        carried: what the first round begins with.
        slices: what is read at the step's place, or so many places behind it.
        lists: lists that get elements each round.
        counts: how many, of each of them.
        written: what is written to at the step's place.
        changed: places in `carried` of lists and dicts that get other elements.
        turned: places of lists that get elements at their beginning.
        sums: places in `carried` of tensors that are written to in each round.
        is_begun: whether the first round is run by itself: it does what eager does with a number, or with nothing.
        numbers: places in `carried` of numbers that rounds take tensors for.
        states: attributes of modules that go on, the last ones in `carried`.
        is_traced: whether dynamo takes no such round.
    """

    body: Callable[..., Any]
    over: FreeNumbers
    carried: Sequence[Any]
    slices: Sequence[Along]
    lists: Sequence[list[Any]]
    counts: Sequence[int]
    written: Sequence[Written]
    changed: Sequence[int]
    turned: Sequence[int]
    sums: Sequence[int]
    is_begun: bool
    numbers: Collection[int]
    states: ModuleStates
    is_traced: bool

    def run(self) -> tuple[tuple[Any, ...], tuple[FreeRows | LoopPieces, ...]] | None:
        """All rounds: what goes on as the last round leaves it, and the lists; tensors are written to.

        None where what goes on has a size that data say: then nothing has changed, and the reason is noted.
        """
        try:
            return self._run()
        except loop_pieces.SizeByDataError as error:
            loop_reasons.note_of(self.body, str(error))
            return None
        except UncapturedHigherOrderOpError as error:
            why, is_own = _why(error)
            loop_reasons.note_of(self.body, why)
            if is_own:
                return None
            raise

    def _run(self) -> tuple[tuple[Any, ...], tuple[FreeRows | LoopPieces, ...]]:
        length = self.over.free_length()
        reach = Reach.of(self.over)
        known = loop_pieces.KnownSizes.now(length)
        begun = [one for one in pytree.tree_leaves(list(self.carried)) if isinstance(one, Tensor)]
        if self.is_begun:
            says_of_none(length)
        last, found, form = self._all_rounds(self.with_numbers(), known)
        known.check(last)
        listed = found[: sum(self.counts)]  # what is written has the size of the place
        axes = {place: differing for place, one in enumerate(listed) if (differing := known.differing(one))}
        pieces: dict[int, LoopPieces] = {}
        if axes:
            last, found, pieces = self._padded(found, axes, known)
        filled = self._filled(found, pieces)
        kept = [*(one for one, *_, is_own in self.slices if not is_own), *last, *found[: sum(self.counts)]]
        kept += [*(one for each in self.lists for one in each), *(one.rows for one in filled)]
        note_read(kept, [one for one in begun if all(one is not self.carried[at] for at in self.sums)], length)
        for place, made in zip(self.written, found[sum(self.counts) :], strict=True):
            reach.write(*place, made)
        going = self._put_back(pytree.tree_unflatten(last, form))
        own = len(going) - len(self.states.where)
        self.states.put(going[own:])
        return tuple(going[:own]), tuple(filled)

    def with_numbers(self) -> Callable[..., Any]:
        """A round that gives numbers of Python's which are written to tensors as such (`out[t] = 1`)."""
        body, count = self.body, sum(self.counts)
        kinds = [(one.dtype, one.device, is_added) for one, *_, is_added in self.written]
        if not kinds:
            return body

        def with_numbers(*given: Any) -> tuple[Any, tuple[Any, ...]]:
            now, made = body(*given)
            written = (_as_written(one, *kind) for one, kind in zip(made[count:], kinds, strict=True))
            return now, (*made[:count], *written)

        return with_numbers

    def _put_back(self, last: list[Any]) -> list[Any]:
        """Gives lists, dicts and tensors that were there before the loop what they hold behind it."""
        for place in self.changed:
            own, made = self.carried[place], last[place]
            own.clear()
            own.update(made) if isinstance(own, dict) else own.extend(made)
            last[place] = own
        for place in self.sums:
            own = self.carried[place]
            own.copy_(last[place])
            last[place] = own
        return [self._as_number(one, place) for place, one in enumerate(last)]

    def _as_number(self, one: Any, place: int) -> Any:
        """A number that has gone on as a tensor as a number of the capture again; anything else as it is."""
        return one.item() if place in self.numbers else one

    def _all_rounds(
        self, body: Callable[..., Any], known: loop_pieces.KnownSizes
    ) -> tuple[list[Tensor], list[Tensor], pytree.TreeSpec]:
        """What goes on, what rounds give besides, and in what what goes on lies.

        Args:
            body: the round, or one that gives something else besides.
            known: sizes that data say in front of the loop.
        """
        steps = self.over.runs[0]
        rows = [Reach.of(self.over).rows(*one[:3]) for one in self.slices]
        leaves, form = pytree.tree_flatten(list(self.carried))
        beside: list[Any] = [*leaves, *(one for one, *_ in self.slices), *(one for one, *_ in self.written)]
        device = next((one.device for one in beside if isinstance(one, Tensor)), None)
        if self.is_begun:
            return self._begun_by_one(body, steps, rows, device, known)
        round_of_leaves = loop_scans.on_leaves(body, form)
        return *loop_scans.rounds(round_of_leaves, steps, leaves, rows, device, is_traced=self.is_traced), form

    def _padded(
        self, found: Sequence[Tensor], axes: Mapping[int, Sequence[int]], known: loop_pieces.KnownSizes
    ) -> tuple[list[Tensor], list[Tensor], dict[int, LoopPieces]]:
        """What goes on and what rounds give besides, where they differ in the size of pieces, and these pieces.

        Args:
            found: what rounds give besides, if its size is always the same.
            axes: for the places of such pieces the axes.
            known: sizes that data say in front of the loop.
        """
        loop_reasons.note_of(self.body, "rounds give pieces whose size data say, of which more is asked than all")
        along = {place: each[0] if len(each) == 1 else None for place, each in axes.items()}
        _, lengths, _ = self._all_rounds(loop_pieces.lengths_of(self.body, along), known)
        longest = [loop_pieces.longest(one) for one in lengths]
        last, made, _ = self._all_rounds(loop_pieces.padded(self.body, along, longest), known)
        pieces = {
            place: LoopPieces(found[place], axis, counted, made[place])
            for (place, axis), counted in zip(along.items(), lengths, strict=True)
        }
        return last, made, pieces

    def _filled(self, found: Sequence[Tensor], pieces: Mapping[int, LoopPieces]) -> list[FreeRows | LoopPieces]:
        made: list[FreeRows | LoopPieces] = []
        place = 0
        for at, (own, count) in enumerate(zip(self.lists, self.counts, strict=True)):
            if place in pieces and count == 1 and not own and at not in self.turned:
                made.append(pieces[place])
                place += count
                continue
            if not pieces.keys().isdisjoint(range(place, place + count)):
                raise loop_pieces.SizeByDataError("pieces whose size data say go into a list beside others")
            parts = list(found[place : place + count])
            rows = parts[0] if count == 1 else torch.stack(parts, 1).flatten(0, 1)
            others = [torch.stack(own)] if own else []
            joined = [rows.flip(0), *others] if at in self.turned else [*others, rows]
            made.append(FreeRows(torch.cat(joined) if own else joined[0], list))
            place += count
        return made

    def _begun_by_one(
        self, body: Callable[..., Any], steps: Run, rows: Sequence[Tensor], device: Any, known: loop_pieces.KnownSizes
    ) -> tuple[list[Tensor], list[Tensor], pytree.TreeSpec]:
        """The first round, and the others from what it gives; without rounds what began, as tensors of that shape.

        Args:
            body: the round.
            steps: the steps.
            rows: what is read, along the first axis.
            device: where the step's tensor lies.
            known: sizes that data say in front of the loop.
        """
        none = torch.sym_max(1 - steps.length, 0)
        is_run = statically_known_true(steps.length > 0)
        firsts = [(one if is_run else loop_scans.lengthened(one, none)).select(0, 0) for one in rows]
        first = loop_scans.first_number(steps, 0 if is_run else none)
        step = torch.scalar_tensor(first, dtype=torch.int64, device=device)
        now, made = body(tuple(self.carried), tuple(firsts), step, True)
        begun, form = pytree.tree_flatten(list(now))
        more = Run(steps.at(1), steps.step, steps.length - 1 + (0 if is_run else none))
        last, found = loop_scans.rounds(
            loop_scans.on_leaves(body, form),
            more,
            begun,
            [one[1:] for one in rows],
            device,
            is_traced=self.is_traced,
        )
        if any(map(known.differing, found)):
            raise loop_pieces.SizeByDataError("rounds behind the first one give pieces whose size data say")
        found = [torch.cat([one[None], others]) for one, others in zip(made, found, strict=True)]
        if not is_run:
            before, begun_form = pytree.tree_flatten(list(self.carried))
            before = before if begun_form == form else [None] * len(last)
            last, found = loop_scans.of_real_rounds(last, found, before, steps.length, none)
        return last, found, form


def _as_written(value: Any, dtype: torch.dtype, device: torch.device, is_added: bool) -> Any:
    """A number of Python's, or of sizes or steps, as a tensor writes it; anything else as it is.

    What is no whole number is not added to whole numbers: torch refuses that, too.
    """
    is_whole, is_plain = isinstance(value, (int, torch.SymInt)), type(value) in (int, bool, float)
    if not is_plain and not isinstance(value, (torch.SymInt, torch.SymFloat)):
        return value
    if not is_whole and is_added and not dtype.is_floating_point:
        return value
    if is_plain:
        return torch.full((), value, dtype=dtype, device=device)
    return torch.scalar_tensor(value, dtype=torch.int64 if is_whole else torch.float64, device=device).to(dtype)


def _why(error: Exception) -> tuple[str, bool]:
    """Why torch takes no such round, and whether it is one of our own reasons, with which nothing has changed yet."""
    text = str(error)
    own = re.search(rf"{loop_pieces.SizeByDataError.__name__}\('(.*)'\)", text)
    if own is not None:
        return own.group(1), True
    said = [line.strip() for line in text.splitlines() if line.strip()][1:2]
    return f"torch takes no such round as one operator ({said[0] if said else type(error).__name__})", False
