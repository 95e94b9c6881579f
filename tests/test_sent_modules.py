"""What `sweep(models=...)` sends to other processes: files under names that say all that is in them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from batch_export.errors import UsageError
from batch_export.stages import sent_module
from batch_export.stages.probe_request import ProbeRequest
from batch_export.stages.state import ModuleState
from batch_export.sweeps.model_words import request_of

MAKERS = """
import torch


class Scripted(torch.nn.Module):
    several: list[float]

    def __init__(self, factor: float):
        super().__init__()
        self.several = [factor]
        self.register_buffer("kept", torch.ones(3), persistent=False)

    def forward(self, x):
        return x * self.several[0] + self.kept


class Branches(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        factor = self.factor
        return torch.cond(x.sum() > 0, lambda x: x * factor, lambda x: x - factor, (x,))


def scripted(factor):
    return torch.jit.script(Scripted(factor))


def frozen(factor):
    return torch.jit.freeze(torch.jit.script(Scripted(factor)).eval())


def traced(factor):
    table = torch.full((3, 64), factor)

    class Product(torch.nn.Module):
        def forward(self, x):
            return x @ table

    return torch.jit.trace(Product(), torch.ones(2, 3))


branches = Branches
"""
SEND = """
import sys
from pathlib import Path
import of_makers
from batch_export.stages import sent_module
from batch_export.sweeps.model_words import request_of
for maker in sys.argv[2:]:
    made = getattr(of_makers, maker)(float(sys.argv[1]))
    found = sent_module.sent(made, request_of("mine", "", ["x=float32[2, 3]"], []), Path("sent", maker))
    print(Path(found.arguments["f"]).name)
"""


@pytest.fixture
def sent(tmp_path: Path) -> Callable[..., list[str]]:
    """Sends modules from a process of its own, where names of classes are always the same; gives the files' names."""
    (tmp_path / "of_makers.py").write_text(MAKERS)

    def names(*words: str) -> list[str]:
        path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", ""), str(Path.cwd())])
        command = [sys.executable, "-W", "ignore", "-c", SEND, *words]
        made = subprocess.run(
            command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True
        )
        return made.stdout.split()[-len(words) + 1 :]

    return names


def test_the_name_of_a_file_says_all_that_is_in_it(sent: Callable[..., list[str]], tmp_path: Path) -> None:
    makers = ("scripted", "frozen", "traced", "branches")
    first, other = sent("2.0", *makers), sent("3.0", *makers)
    paths = [tmp_path / "sent" / maker / name for maker, name in zip(makers, first, strict=True)]
    before = [path.stat().st_mtime_ns for path in paths]
    assert sent("2.0", *makers) == first
    assert [path.stat().st_mtime_ns for path in paths] == before, "they keep their bytes"
    for path, changed in zip(paths, other, strict=True):
        assert sorted(one.name for one in path.parent.iterdir()) == sorted({path.name, changed})
        assert path.name != changed


class _Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.BatchNorm1d(3)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        return self.inner(x) * self.steps  # type: ignore[no-any-return]


def test_buffers_of_a_scripted_module_are_put_back() -> None:
    module: Any = torch.jit.script(_Counting().eval())
    state = ModuleState(module)
    module(torch.ones(2, 3))
    assert list(state.changed()) == ["steps"]
    state.restore()
    assert int(module.steps) == 0
    assert not state.changed()


class _Sparse(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("edges", torch.eye(3).to_sparse())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.edges.to_dense()  # type: ignore[operator]


def test_what_torch_has_no_file_for_is_one_sentence(tmp_path: Path) -> None:
    request: ProbeRequest = request_of("mine", "", ["x=float32[2, 3]"], [])
    with pytest.raises(
        UsageError, match=r"the model 'mine' cannot be written to a file: NotImplementedError.*give the f"
    ):
        sent_module.sent(_Sparse(), request, tmp_path)
    assert not list(tmp_path.iterdir())


class _Streaming(torch.nn.Module):
    """Each run goes on from what the one before left, in a buffer and in attributes."""

    steps: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(3))
        self.seen: list[int] = []
        self.count = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps.add_(x.mean(0))
        self.count += 1
        self.seen.append(self.count)
        return x + self.steps


def test_a_module_is_left_as_it_was_and_sent_so(tmp_path: Path) -> None:
    module = _Streaming()
    request: ProbeRequest = request_of("mine", "", ["x=float32[batch=2, 3]"], [])
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    sent = [sent_module.sent(module, request, tmp_path) for _ in range(2)]
    assert torch.equal(torch.random.get_rng_state(), before)
    assert (module.count, module.seen) == (0, [])
    assert torch.equal(module.steps, torch.zeros(3))
    assert sent[0].arguments == sent[1].arguments
    program = torch.export.load(sent[0].arguments["f"])
    assert torch.equal(program.state_dict["steps"], torch.zeros(3))


def test_what_cannot_be_written_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch.export, "save", fails)
    request: ProbeRequest = request_of("mine", "", ["input=float32[2, 3]"], [])
    with pytest.raises(OSError, match="No space left"):
        sent_module.sent(torch.nn.Linear(3, 2), request, tmp_path)
    assert not list(tmp_path.iterdir())
