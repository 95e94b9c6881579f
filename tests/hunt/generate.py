"""One seed, one program: steps are drawn from the families and run as they are drawn; what eager refuses is dropped.

A seed arrives, a `Program` and its assignments of sizes leave. The same seed gives the same program in any process.
"""

from __future__ import annotations

import random
import warnings
from dataclasses import dataclass, replace

import torch

from hunt import families, grammar, values
from hunt.grammar import Environment, Expansion
from hunt.programs import Leaf, Program, Step, statement

_TRIES = 12
"""Templates tried for each step."""
_LARGEST = 1500
"""Elements of a result; larger ones are dropped, since small programs run fast and fail alike."""
_KEPT = {
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool, torch.uint8, torch.int8),
    *(torch.int16, torch.int32, torch.int64, torch.complex64),
}


@dataclass(frozen=True)
class Hunted:
    """A program, and the sizes of its free axes: the example's first."""

    seed: int
    program: Program
    assignments: tuple[dict[str, int], ...]


def generate(seed: int) -> Hunted:
    """The program of this seed."""
    rng = random.Random(seed)
    assignments = _assignments(rng)
    leaves = _leaves(rng, tuple(assignments[0]))
    start = Program(tuple(leaves), (), ())
    run_at = assignments[:2]
    environment = Environment(rng, [values.case(start, sizes, "plain", seed) for sizes in run_at], list(leaves))
    steps: list[Step] = []
    wanted = rng.choice((2, 3, 4, 5, 6, 8, 10))
    with torch.no_grad(), warnings.catch_warnings(), torch.compiler.set_stance("force_eager"):
        warnings.simplefilter("ignore")
        while wanted > 0:
            steps += _drawn(environment, seed, run_at)
            wanted -= 1
    program = _finished(rng, environment, steps)
    used = set(program.axes)
    return Hunted(seed, program, tuple({k: v for k, v in sizes.items() if k in used} for sizes in assignments))


def _assignments(rng: random.Random) -> list[dict[str, int]]:
    """Sizes of the free axes: the example, then others; the last ones have an axis of 1, of none, of many."""
    names = [(), (), ("n",), ("n",), ("n", "m")][rng.randrange(5)]
    example = dict(zip(names, rng.sample((2, 3, 4, 5), len(names)), strict=True))
    if not names:
        return [{}]
    other = dict(zip(names, rng.sample((2, 3, 4, 6, 7), len(names)), strict=True))
    found = [example, other]
    for special in (1, 0, 9):
        found.append({**other, rng.choice(names): special})
    return found


def _leaves(rng: random.Random, free: tuple[str, ...]) -> list[Leaf]:
    """Leaves whose shapes are kin: the base, its tail, with axes of one, transposed."""
    rank = rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4))
    if free:
        rank = max(rank, 1)
    base: list[int | str] = [rng.choice((1, 2, 3, 3, 4, 4, 5, 6)) for _ in range(rank)]
    if not free and rng.random() < 0.04 and base:
        base[rng.randrange(rank)] = 0
    for name in free:
        base[rng.randrange(rank)] = name
    main = rng.choice(
        ("float32",) * 12 + ("float64", "float16", "bfloat16", "int64", "int64", "int32", "uint8", "int8", "int16")
    )
    leaves = []
    for index in range(rng.randint(1, 4)):
        shape = list(base)
        change = rng.random() if index else 1.0
        if change < 0.2:
            shape = shape[rng.randint(0, len(shape)) :]
        elif change < 0.35 and shape:
            shape[rng.randrange(len(shape))] = 1
        elif change < 0.45:
            shape = shape[::-1]
        rare = "complex64" if rng.random() < 0.2 else "float64"
        other = rng.choice(("float32", "int64", "bool", "int32", "float32", "int64", rare))
        dtype = main if rng.random() < 0.65 else other
        layout = rng.choice(("plain",) * 6 + ("permuted", "strided"))
        static = not any(isinstance(size, str) for size in shape)
        held = static and index > 0 and rng.random() < 0.25
        leaves.append(Leaf(f"{'b' if held else 'x'}{index}", dtype, tuple(shape), layout, held))
    buffers = [leaf for leaf in leaves if leaf.is_buffer and leaf.shape and leaf.layout == "plain"]
    if buffers and rng.random() < 0.3:
        last = buffers[-1]
        leaves.append(Leaf("b9", last.dtype, tuple(reversed(last.shape)), is_buffer=True, within=last.name))
    return leaves


def _drawn(environment: Environment, seed: int, run_at: list[dict[str, int]]) -> list[Step]:
    """The steps of one template that runs at every assignment; none when no try did."""
    for _ in range(_TRIES):
        family = environment.rng.choices(families.NAMES, families.WEIGHTS)[0]
        template = environment.rng.choice(families.FAMILIES[family])
        steps = _expanded(template, environment, seed, run_at)
        if steps:
            return steps
    return []


def _expanded(template: str, environment: Environment, seed: int, run_at: list[dict[str, int]]) -> list[Step]:
    """The template's steps, run; the environment is as before when one of them cannot be."""
    kept = [dict(values) for values in environment.values]
    made: list[Step] = []
    leaves: list[Leaf] = []
    before: list[str] = []
    for line in template.split(";"):
        expansion = Expansion()
        try:
            step = grammar.line(line, environment, before, expansion)
            _add_leaves(environment, expansion.leaves, seed, run_at)
            step = _run(environment, step, line.strip().startswith("!"))
        except Exception:  # whatever eager raises: this template does not fit these tensors
            environment.values[:] = kept
            return []
        leaves += expansion.leaves
        made.append(step)
        before += step.writes[:1]
    environment.leaves += leaves
    return made


def _add_leaves(environment: Environment, leaves: list[Leaf], seed: int, run_at: list[dict[str, int]]) -> None:
    for found, sizes in zip(environment.values, run_at, strict=True):
        found.update(values.case(Program(tuple(leaves), (), ()), sizes, "plain", seed))


def _run(environment: Environment, step: Step, writes_only: bool) -> Step:
    """Runs the step at every assignment and names its results.

    Raises:
        Exception: whatever eager raises, and ValueError for results that are of no use.
    """
    results = []
    alone = False
    for found in environment.values:
        names = {"torch": torch, "F": torch.nn.functional, "math": __import__("math"), **found}
        code = statement(step)
        if writes_only:
            exec(code, names)
            continue
        result = eval(code, names)
        tensors = list(result) if isinstance(result, (tuple, list)) else [result]
        alone = isinstance(result, (tuple, list)) and len(tensors) == 1
        if not tensors or len(tensors) > 4 or not all(_is_of_use(one) for one in tensors):
            raise ValueError("not of use")
        results.append(tensors)
    if writes_only:
        return step
    if len({(len(one), *((tensor.dtype, tensor.dim()) for tensor in one)) for one in results}) > 1:
        raise ValueError("ranks or dtypes depend on sizes")
    if _is_lost(results[0]) and environment.rng.random() < 0.8:
        raise ValueError("nothing finite is left")
    names_of = tuple(environment.name("v") for _ in results[0])
    for found, tensors in zip(environment.values, results, strict=True):
        found.update(zip(names_of, tensors, strict=True))
    return replace(step, writes=names_of, code=f"({step.code})[0]" if alone else step.code)


def _is_of_use(one: object) -> bool:
    return isinstance(one, torch.Tensor) and one.numel() <= _LARGEST and one.dtype in _KEPT and one.dim() <= 6


def _is_lost(tensors: list[torch.Tensor]) -> bool:
    floats = [one for one in tensors if one.is_floating_point() and one.numel()]
    return any(torch.isfinite(one).double().mean() < 0.5 for one in floats)


def _finished(rng: random.Random, environment: Environment, steps: list[Step]) -> Program:
    """Chooses the outputs: what nothing reads, and some of the rest; sometimes one twice, sometimes an input."""
    made = [name for step in steps for name in step.writes]
    read = {name for step in steps for name in step.reads}
    outputs = [name for name in made if name not in read or rng.random() < 0.25]
    inputs = [leaf.name for leaf in environment.leaves]
    written = [step.reads[0] for step in steps if not step.writes]
    outputs += [name for name in written if name not in outputs]
    if rng.random() < 0.05 and inputs:
        outputs.append(rng.choice(inputs))
    if rng.random() < 0.05 and outputs:
        outputs.append(rng.choice(outputs))
    outputs = outputs or inputs[:1]
    free = [leaf.name for leaf in environment.leaves if not leaf.is_buffer]
    nested = tuple(free[-rng.randint(1, len(free)) :]) if free and rng.random() < 0.1 else ()
    form = rng.choice(("tuple", "tuple", "tuple", "one", "dict"))
    leaves = tuple(environment.leaves)
    return Program(leaves, tuple(steps), tuple(outputs), form, nested, rng.randint(18, 25), rng.random() < 0.5)
