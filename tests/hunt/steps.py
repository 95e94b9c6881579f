"""Which steps of a program a file gets wrong, each judged at the numbers that the file itself brings to it.

A program, its example and values at which the file differs arrive; the operators of the wrong steps leave. Where no
step is wrong, the file rounds like eager at every step, and only the way there makes a difference of it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from hunt import runs
from hunt.compare import difference
from hunt.judge import Case, allowances_of
from hunt.programs import Leaf, Program, Step, Tensors, fresh, module, statement


def wrong_steps(program: Program, example: Tensors, values: Tensors, runtime: str = runs.PLAIN) -> list[str] | None:
    """The operators of the steps that differ from eager; None where the steps cannot be told apart.

    That is so where the file with all results as outputs no longer differs, where a write reaches other elements in the
    file than in eager, and where anything fails.
    """
    steps, after = _with_copies(program)
    names = tuple(dict.fromkeys(name for moment in after for name in moment.values() if name not in values))
    last = [after[-1][name] for name in (*program.outputs, *values)]
    whole = replace(program, steps=steps, outputs=names, form="tuple")
    try:
        exported = runs.export(whole, example)
        expected = runs.eager(whole, values)
        mapped = runs.places(whole, exported)
        results = runs.Files(exported).run(runtime, whole, values)
        given = {names[place]: one for place, one in zip(mapped, results, strict=True) if place < len(names)}
        same = [_agree(expected[names.index(name)], given[name]) for name in last if name in given]
        known = {**values, **given}
        moments = [{name: known[copy] for name, copy in moment.items()} for moment in after]
        return None if all(same) or not _written_alike(program, values, moments) else _compared(program, moments)
    except Exception:  # then nothing is proven
        return None


def _with_copies(program: Program) -> tuple[tuple[Step, ...], list[dict[str, str]]]:
    """The steps with copies of what there is, where a step writes into a tensor.

    Returns:
        The steps, and for the beginning and behind each of the program's steps: a variable -> the name of the value
        that it has there.
    """
    after = [{leaf.name: leaf.name for leaf in program.leaves}]
    steps: list[Step] = []
    writes_into = any(not step.writes for step in program.steps)
    for place, step in enumerate(program.steps):
        steps.append(step)
        now = {**after[-1], **{name: name for name in step.writes}}
        for name in (step.writes or now) if writes_into else ():
            now[name] = f"{name}_after_{place}"
            steps.append(Step("{0}.clone()", "{0}.clone()", (name,), (now[name],)))
        after.append(now)
    return tuple(steps), after


def _changed(step: Step) -> tuple[str, ...]:
    return step.writes or step.reads[:1]


def _written_alike(program: Program, values: Tensors, moments: list[Tensors]) -> bool:
    """Whether each step changes nothing in the file but what it changes in eager's memory.

    Eager goes along with the file's numbers: each step's own result is replaced by the file's, and then every other
    variable has to have the file's numbers too, whether it shares memory with that result or does not.
    """
    made = module(program, values)
    live: dict[str, Any] = {leaf.name: fresh(values[leaf.name]) for leaf in program.inputs}
    live |= {leaf.name: getattr(made, leaf.name) for leaf in program.buffers}
    modules = {"torch": torch, "F": torch.nn.functional, "math": math}
    with torch.no_grad():
        for step, moment in zip(program.steps, moments[1:], strict=True):
            exec(statement(step), modules, live)
            for name in _changed(step):
                if step.writes and live[name].shape != moment[name].shape:  # nothing can share it
                    live[name] = moment[name].clone()
                live[name].copy_(moment[name])
            if not all(_agree(live[name], one) for name, one in moment.items()):
                return False
    return True


def _compared(program: Program, moments: list[Tensors]) -> list[str]:
    return [
        step.operator
        for step, before, after in zip(program.steps, moments, moments[1:], strict=False)
        if not _is_right(step, {name: before[name] for name in step.reads}, after)
    ]


def _is_right(step: Step, reads: Tensors, given: Tensors) -> bool:
    """Whether the file's results of one step are eager's of the same numbers, as far as the step alone rounds.

    Where they are not, but the step's own file has them once each node rounds correctly, onnxruntime is wrong.
    """
    leaves = tuple(Leaf(name, str(one.dtype).removeprefix("torch."), tuple(one.shape)) for name, one in reads.items())
    alone = Program(leaves, (step,), _changed(step))
    expected = runs.eager(alone, reads)
    actual = [given[name] for name in _changed(step)]
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
