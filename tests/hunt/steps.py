"""Which steps of a program a file gets wrong, each judged at the numbers that the file itself brings to it.

A program, its example and values at which the file differs arrive; the operators of the wrong steps leave. Where no
step is wrong, the file rounds like eager at every step, and only the way there makes a difference of it.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from hunt import runs
from hunt.compare import difference
from hunt.judge import Case, allowances_of
from hunt.programs import Leaf, Program, Step, Tensors


def wrong_steps(program: Program, example: Tensors, values: Tensors, runtime: str = runs.PLAIN) -> list[str] | None:
    """The operators of the steps that differ from eager; None where the steps cannot be told apart.

    That is so where a step writes into a tensor, where the file with all results as outputs no longer differs, and
    where anything fails.
    """
    if any(not step.writes for step in program.steps):
        return None
    names = tuple(dict.fromkeys((*program.outputs, *(name for step in program.steps for name in step.writes))))
    whole = replace(program, outputs=names, form="tuple")
    try:
        exported = runs.export(whole, example)
        expected = runs.eager(whole, values)
        mapped = runs.places(whole, exported)
        results = runs.Files(exported).run(runtime, whole, values)
        given = {names[place]: one for place, one in zip(mapped, results, strict=True) if place < len(names)}
        same = [_agree(expected[names.index(name)], given[name]) for name in program.outputs]
        return None if all(same) else _compared(program, values, given)
    except Exception:  # then nothing is proven
        return None


def _compared(program: Program, values: Tensors, given: Tensors) -> list[str]:
    known = {**values, **given}
    return [
        step.operator
        for step in program.steps
        if not _is_right(step, {name: known[name] for name in step.reads}, given)
    ]


def _is_right(step: Step, reads: Tensors, given: Tensors) -> bool:
    """Whether the file's results of one step are eager's of the same numbers, as far as the step alone rounds.

    Where they are not, but the step's own file has them once each node rounds correctly, onnxruntime is wrong.
    """
    leaves = tuple(Leaf(name, str(one.dtype).removeprefix("torch."), tuple(one.shape)) for name, one in reads.items())
    alone = Program(leaves, (step,), step.writes)
    expected = runs.eager(alone, reads)
    actual = [given[name] for name in step.writes]
    if all(_agree(one, other) for one, other in zip(expected, actual, strict=False)):
        return True
    allowed = allowances_of(alone, Case(reads, {}, ""), expected)
    if allowed is None:
        return True
    for given_by in (
        actual,
        runs.Files(runs.export(alone, reads)).run(runs.IDEAL, alone, reads),
    ):  # or onnxruntime is wrong
        if all(difference(*three) is None for three in zip(expected, given_by, allowed, strict=False)):
            return True
    return False


def _agree(expected: torch.Tensor, actual: torch.Tensor) -> bool:
    return difference(expected, actual) is None
