"""Loops over a free axis, drawn at random, exported once and compared with eager at other lengths.

`python -m hunt.loops --seed 0 --count 200` in tests/; one seed is one program. What no operator takes is refused, and
counted; a file that gives other numbers is written to the folder, with the lengths at which it does.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import torch
from exporting import Called

from batch_export.errors import BatchExportError
from batch_export.exporter import export
from hunt.judge import holds

Tensor = torch.Tensor
Made = tuple[Tensor, ...]
SIZES = ((2, 8), (1, 9), (3, 5), (2, 4), (1, 3), (2, 12), (1, 2), (2, 1))
"""The batch and the length of each comparison; the first one is that of the example."""
WIDTH = 4
_TOLERANCE = 2e-4

_HEADS = (
    *("for t in range(n):", "for t in range(1, n):", "for t in range(n - 1):", "for t in range(1, n - 1):"),
    *("for t in reversed(range(n)):", "for t in range(n - 1, -1, -1):", "for t in range(0, n, 2):"),
    *("for t, row in enumerate(x.unbind(1)):", "while t < n:", "steps = range(n)\nfor t in steps:"),
)
_LEAVES = ("x[:, t]", "h", "g", "y", "x[:, t] * t", "h * k", "x[:, t].clone()", "x.select(1, t)", "st[0]")
_PLACES = ("x[:, t + 1]", "x[:, t - 1]", "wide[:, t:t + 3].sum(1)", "x[:, n - 1 - t]", "x[:, -t - 1]")
_BY_NUMBER = (
    *("x[:, :t + 1].sum(1)", "x[:, t:].mean(1)", "x[:, max(0, t - 2):t + 1].sum(1)", "torch.full_like(h, t)"),
    *("x[:, :t].sum(1)", "(x * (torch.arange(n) <= t)[None, :, None]).sum(1)", "table[0, t] * h", "cell(h)"),
    *("cell(x[:, t])", "torch.roll(x, t, 1)[:, 0]", "x[:, -t - 1:].sum(1)", "x[:, t:t + 2].sum(1)"),
)
"""The step as a number, and a module that keeps something."""
_INNER = (
    *("torch.tanh({})", "({} + {})", "({} * 0.5)", "({} - {})", "torch.maximum({}, {})", "{}.softmax(-1)"),
    *("torch.where(mask[:, t, None], {}, {})", "torch.where((t < lengths)[:, None], {}, {})", "({} / (t + 1))"),
    *("({} * 0.9 ** t)", "({} if t % 2 == 0 else {})", "({} if t > 0 else {})"),
)
_STATEMENTS = (
    *(
        "h = {}",
        "g = {}",
        "y = {}",
        "h += {}",
        "h.mul_(0.5)",
        "first.append({})",
        "last.insert(0, {})",
        "first += [{}]",
    ),
    *("out[:, t] = {}", "out[:, t] += {}", "out[:, t] = out[:, t - 1] * 0.5 + {}", "other[:, n - 1 - t] = {}"),
    *("k += 1", "k = k * 0.9", "total += ({}).sum()", 'named["s"].append({})', "st = (st[0] * 0.5 + {}, st[1])"),
    *("grown = torch.cat([grown, ({}).unsqueeze(1)], 1)", "sound[:, 2 * t:2 * t + 3] += ({}).unsqueeze(1)"),
    *("if t % 3 == 1:\n    h = {}\nelse:\n    g = {}", "if t < n - 1:\n    g = {}"),
    "if t == 0:\n    h = {}\nelse:\n    h = {}",
)
_WITHIN = (
    *(
        "out[:, t, 0] = ({})[:, 0]",
        "out[:, t, 1:] = ({})[:, 1:]",
        "out[:, t, 2] += ({})[:, 2]",
        "square[t, :t + 1] = 1",
    ),
    *("for s in range(n):\n    h = torch.tanh(h + x[:, s])", "for s in range(t + 1):\n    g = g * 0.5 + {}"),
    *(
        "for s in range(t, n):\n    y = y + x[:, s] * {}",
        "for s in range(n):\n    if s != t:\n        y = y + x[:, s] / n",
    ),
    *(
        "for s in range(n):\n    square[t, s] = (x[0, t] * x[-1, s]).sum()",
        "h = cell({})",
        "g = cell.step({}) * cell.count",
    ),
    "inner = []\nfor s in range(n):\n    inner.append(x[:, s] * {})\nfirst.append(torch.stack(inner).sum(0))",
    "for s in range(1, n):\n    square[t, s] = square[t, s - 1] * 0.5 + x[0, s, 1]",
    "for layer in range(2):\n    g = torch.tanh(g + {}) * (layer + 1)",
    "part = x.clone()\npart[:, t] = 0\npart[:, :t] *= 2\ny = y + part.sum(1)",
    "found = x[:, :t + 1]\ng = (found @ torch.ones(4, 4)).max(1).values",
    *("own = own + own[t] * {}.mean()", "own = torch.where(own[t] > 0, own * 0.5, own + 1)", "y = y + own[t, :1]"),
    "g = g + functools.reduce(lambda a, b: a * 0.5 + b, x.unbind(1)) * {}",
    "y = y + functools.reduce(torch.maximum, x.transpose(0, 1), {})",
)
"""Parts of what is at a place, loops within, a module that keeps something, what goes on read at the step's place."""
_PLACED = ("placed[t] = {}", "placed[t] = placed[t] + {}")
"""A list with a place for each round."""
_CELL = """
class Cell(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kept, self.count = None, 0

    def step(self, x):
        self.count += 1
        return self(x)

    def forward(self, x):
        self.kept = x * 0.5 if self.kept is None else self.kept * 0.25 + x
        return self.kept.tanh()
"""
_BEGUN = """
n = x.shape[1]
lengths, mask = (x[..., 0] > 0).sum(1), x[..., 1] > 0
wide = torch.nn.functional.pad(x, (0, 0, 0, 4))
h, g, y = {state}, torch.ones(x.shape[0], 4), torch.zeros(x.shape[0], 4)
first, last, named, k, total, t = [], [], {{"s": []}}, {number}, 0.0, 0
out, other = {tensors}
grown, sound = {grown}, torch.zeros(x.shape[0], 2 * n + 3, 4)
st = (h, g)
known = {known}
square, table, cell = torch.zeros(n, n), torch.arange(80.0).reshape(2, 40), Cell()
own = x[0] * 1
{placed}
"""
_GIVEN = """
none = x[:, :1].sum() * 0
result = [h, g, y, out, other, grown, sound, st[0], known, square, own, none + total, none + k]
"""


@dataclass(slots=True)
class Drawn:
    """Draws one program.

    Attributes:
        seed: the program's.
        draw: its random numbers.
        leaves: what an expression may be made of.
        statements: what a round may be made of.
    """

    seed: int
    draw: random.Random = field(init=False)
    leaves: tuple[str, ...] = field(init=False)
    statements: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.leaves = (*_LEAVES, *(_PLACES if self.draw.random() < 0.5 else ()))
        is_further = self.draw.random() < 0.5
        self.leaves += _BY_NUMBER if is_further and self.draw.random() < 0.5 else ()
        self.statements = (
            *_STATEMENTS,
            *(_WITHIN if is_further else ()),
            *(_PLACED if self.draw.random() < 0.5 else ()),
        )

    def expression(self, depth: int = 0) -> str:
        """A tensor of the shape of a slice."""
        if depth > 1 or self.draw.random() < 0.35:
            return self.draw.choice(self.leaves)
        return self._filled(self.draw.choice(_INNER), depth + 1)

    def _filled(self, template: str, depth: int = 0) -> str:
        return template.format(*(self.expression(depth) for _ in range(template.count("{}"))))

    def source(self) -> str:
        """The program's code: a function `program` of one tensor."""
        head = self.draw.choice(_HEADS)
        chosen = [self.draw.choice(self.statements) for _ in range(self.draw.randrange(1, 5))]
        body = [self._filled(one) for one in chosen] + (["t += 1"] if head.startswith("while") else [])
        begun = _BEGUN.format(
            state=self.draw.choice(
                (
                    *("torch.zeros_like(x[:, 0])", "x[:, 0] * 1", "torch.ones(x.shape[0], 4)", "x[:, 0]"),
                    *("torch.ones(4)", "torch.ones(1, 4)"),
                )
            ),
            placed="placed = [0.0] * n" if any(one in _PLACED for one in chosen) else "",
            number=self.draw.choice(("0", "1", "1.0")),
            tensors=self.draw.choice(("torch.zeros_like(x), torch.zeros_like(x)", "x.clone(), x * 2")),
            grown=self.draw.choice(("torch.zeros(x.shape[0], 0, 4)", "x[:, :1] * 1")),
            known=self.draw.choice(("h", "out[:, 0]", "y", "y")),
        )
        lists = [
            name
            for name, part in (
                ("first", "first"),
                ("last", "last.insert"),
                ('named["s"]', "named["),
                ("placed", "placed"),
            )
            if any(one.startswith(part) for one in chosen)
        ]
        given = [f"result.append(torch.stack({name}))" for name in lists]
        lines = [
            *begun.strip().split("\n"),
            *head.split("\n"),
            *_indented("\n".join(body)),
            *_GIVEN.strip().split("\n"),
            *given,
        ]
        return (
            f"import functools\n\nimport torch\n\n{_CELL}\n\ndef program(x):\n"
            + "\n".join(_indented("\n".join(lines)))
            + "\n    return tuple(result)\n"
        )


def _indented(text: str) -> list[str]:
    return [f"    {line}" for line in text.split("\n")]


def _loaded(path: Path) -> ModuleType:
    """A file as a module, which dynamo finds by its name."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = made
    spec.loader.exec_module(made)
    return made


def tried(seed: int, folder: Path) -> tuple[str, str]:
    """What becomes of a program: `pass`, `refused`, `eager` (which does not run itself) or `wrong`, and a sentence.

    Args:
        seed: the program's.
        folder: gets its file, which stays there where the result is wrong.
    """
    path = folder / f"loop_{seed}.py"
    path.write_text(Drawn(seed).source(), encoding="utf-8")
    verdict, said = _verdict(_loaded(path).program, seed)
    if verdict != "wrong":
        path.unlink()
    return verdict, said


def _verdict(program: Callable[[Tensor], Made], seed: int) -> tuple[str, str]:
    numbers = torch.Generator().manual_seed(seed)
    inputs = [torch.randn(*size, WIDTH, generator=numbers) for size in SIZES]
    try:
        program(inputs[0].clone())
    except Exception as error:
        return "eager", str(error)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exported = export(Called(program), (inputs[0].clone(),), None, dynamic_shapes=({0: "b", 1: "t"},))
        except BatchExportError as error:
            return "refused", str(error)
    assert exported.captured is not None
    for size, given in zip(SIZES, inputs, strict=True):
        try:
            expected = program(given.clone())
        except Exception:  # the model's own limit
            continue
        if not holds([guard.condition for guard in exported.captured.restrictions], dict(zip("bt", size, strict=True))):
            continue  # a limit that was warned of
        found = exported(given.clone())
        if len(found) != len(expected) or not all(map(_is_same, found, expected)):
            exported.release()
            return "wrong", f"at batch {size[0]} and length {size[1]}"
    exported.release()
    return "pass", ""


def _is_same(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.allclose(one, other, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)


def main(arguments: list[str] | None = None) -> int:
    """Hunts; 1 when a file was wrong."""
    parser = argparse.ArgumentParser(prog="hunt.loops", description="Loops over a free axis against eager.")
    parser.add_argument("--seed", type=int, default=0, help="the first seed; one seed is one program")
    parser.add_argument("--count", type=int, default=200, help="how many programs")
    parser.add_argument("--out", type=Path, default=Path("outputs/hunt_loops"), help="where wrong programs go")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    counts: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.count):
        verdict, said = tried(seed, options.out)
        counts[verdict] += 1
        if verdict == "wrong":
            print(f"{seed}: {verdict} {said} ({options.out / f'loop_{seed}.py'})", flush=True)
    print(", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
