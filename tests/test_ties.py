"""Ties: what a file chooses among equal scores is told apart from what it chooses wrongly."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor, nn

import batch_export
from batch_export.contract import Contract, TensorContract
from batch_export.judge import tie_need
from batch_export.judge.verdict import judge
from batch_export.record import Cell, Record, RunFacts
from batch_export.report.wording import ASCII_GLYPHS, TIES_LEGEND, by_ties_text, cell_text, legends
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.spec import AxisSpec, InputSpec, ModelSpec
from batch_export.stages import check, reference, run, ties
from batch_export.stages import model as model_room
from batch_export.stages.built import built
from batch_export.stages.choices import gap_of

CPU = ProviderSpec("cpu", "onnxruntime", "CPUExecutionProvider")
ULP = 2.0**-22
TIED = (1.0, 1.0, 1.0, 0.5)


class Router(nn.Module):
    """Two of four experts for each row, weighted by their scores; three experts have the same score.

    `scale` is what the scores are multiplied with: in a file, what rounding does to them.
    """

    def __init__(self, scale: tuple[float, ...], fault: str = "") -> None:
        super().__init__()
        self.scale = nn.Buffer(torch.tensor(scale))
        self.experts = nn.Buffer(torch.arange(1.0, 17.0).reshape(4, 4))
        self.fault = fault

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scores = torch.exp(x.sum(-1, keepdim=True) / 100) * self.scale
        weights, chosen = torch.topk(scores, 2)
        if self.fault == "dropped":
            chosen = torch.stack([chosen[:, 0], chosen[:, 0]], -1)
        if self.fault == "score":
            weights = weights * 1.01
        return (self.experts[chosen] * weights.unsqueeze(-1)).sum(1) + x, chosen


class First(nn.Module):
    """`argmax` takes the first of equal scores, which is no choice."""

    def __init__(self, scale: tuple[float, ...], fault: str = "") -> None:
        super().__init__()
        self.scale = nn.Buffer(torch.tensor(scale))

    def forward(self, x: Tensor) -> Tensor:
        return torch.argmax(torch.ones_like(x) * self.scale, -1)


class Bench:
    def __init__(self, scratch: Path, module: nn.Module) -> None:
        self.model = ModelSpec(
            "tied", "", {}, (InputSpec(("x",), "float32", ("batch", 4)),), (AxisSpec("batch", 3, (1,)),)
        )
        self.module = module.eval()
        self.built = built(self.module)
        self.scratch = scratch
        self.was_lent = False

    def inputs(self, sizes: Mapping[str, int], variant: str = "") -> dict[str, Any]:
        return model_room.example_inputs(self.model, sizes, variant)


def verdicts(
    folder: Path, eager: nn.Module, exported: nn.Module, asked: nn.Module | None = None
) -> tuple[Record, Record]:
    """What is said of the file of one module beside eager values of another: without ties, and with them.

    `asked` is the module of the process that looks for ties; by default `eager`.
    """
    bench: Any = Bench(folder, eager)
    made = reference.execute(bench)
    path = folder / "model.onnx"
    batch_export.export(exported.eval(), (bench.inputs({"batch": 3})["x"],), path, dynamic_shapes={"x": {0: "batch"}})
    kinds = [str(output["dtype"]) for output in made.facts["outputs"]]
    requested = Contract(
        20, (TensorContract("x", "float32", ("batch", 4)),), tuple(TensorContract("", kind, None) for kind in kinds)
    )
    cases = (0, 1)
    ran = run.execute(path, made.files["reference"], cases, requested, CPU, 1)
    checked = check.execute(path, requested)
    doubtful = tie_need.unexplained(bench.model, made.facts, cases, checked.facts, [ran.facts])
    bench.module = (asked or eager).eval()
    tied = ties.execute(bench, path, made.files["reference"], doubtful, requested, CPU, 1)
    plain, again = (msgspec.convert(facts["runs"], tuple[RunFacts, ...]) for facts in (ran.facts, tied.facts))
    merged = {one.sizes["batch"]: one for one in (*plain, *again)}
    cell = Cell("tied", "full", 20, "cpu", "core")
    return (
        judge(Record(cell, "fail", runs=plain), bench.model, {}, ()),
        judge(Record(cell, "fail", runs=tuple(merged.values())), bench.model, {}, ()),
    )


def test_another_choice_among_equal_scores_passes_with_a_mark(tmp_path: Path) -> None:
    differing = []
    for favoured in range(3):
        folder = tmp_path / str(favoured)
        folder.mkdir()
        scale = [*TIED]
        scale[favoured] += ULP
        before, after = verdicts(folder, Router(TIED), Router(tuple(scale)))
        assert after.verdict == "pass"
        assert after.by_ties == (before.verdict == "fail")
        differing += [after] if after.by_ties else []
    assert differing, "whatever eager takes, another file takes another"
    assert "topk at " in by_ties_text(differing[0])
    assert "test_ties.py:" in by_ties_text(differing[0])
    assert "=" in cell_text(differing[0], ASCII_GLYPHS)
    assert legends(differing) == [TIES_LEGEND]


@pytest.mark.parametrize(
    ("scale", "fault"),
    [
        pytest.param((1.0, 1.0, 1.0, 1.01), "", id="a worse element"),
        pytest.param((1.0, 1.001, 1.002, 0.5), "", id="another order than that of distinct scores"),
        pytest.param((1.0, 1 + ULP, 1 + 2 * ULP, 0.5), "dropped", id="an element twice in place of another"),
        pytest.param((1.0, 1 + ULP, 1 + 2 * ULP, 0.5), "score", id="a wrong score"),
    ],
)
def test_a_planted_fault_stays_a_fault(tmp_path: Path, scale: tuple[float, ...], fault: str) -> None:
    eager = (1.0, 0.999, 0.998, 0.997) if scale[3] == 1.01 or scale[2] == 1.002 else TIED
    before, after = verdicts(tmp_path, Router(eager), Router(scale, fault))
    assert (before.verdict, after.verdict) == ("fail", "fail")
    assert not after.by_ties


def test_ties_of_another_model_than_eagers_explain_nothing(tmp_path: Path) -> None:
    explained = []
    for favoured in range(3):
        folder = tmp_path / str(favoured)
        folder.mkdir()
        scale = [*TIED]
        scale[favoured] += ULP
        _, after = verdicts(folder, Router(TIED), Router(tuple(scale)), asked=Router(TIED, "score"))
        explained += [after] if after.by_ties else []
    assert not explained


def test_the_first_of_equal_scores_is_no_choice(tmp_path: Path) -> None:
    _, after = verdicts(tmp_path, First((1.0, 1.0, 1.0, 1.0)), First((1.0, 1.0, 1.0, 1.0 + ULP)))
    assert (after.verdict, after.by_ties) == ("fail", False)


NAN = float("nan")
LOW = float("-inf")


@pytest.mark.parametrize(
    ("scores", "eagers", "files", "options", "tied"),
    [
        ([1.0, 1.0, 0.5], [0, 1], [1, 0], {}, True),
        ([1.0, 1.0 + 2**-20, 0.5], [1, 0], [0, 1], {}, True),
        ([1.0, 1.0 + 2**-15, 0.5], [1, 0], [0, 1], {}, False),
        ([1.0, 1.0, 0.5], [0, 1], [0, 0], {}, False),
        ([1.0, 1.0, 0.5], [0, 1], [0, 2], {}, False),
        ([1.0, 1.0, 0.5], [0, 1], [0, 3], {}, False),
        ([1.0, 1.0, 0.5], [0, 1], [-1, 1], {}, False),
        ([1.0, 0.5, 0.5], [0, 1], [1, 0], {}, False),
        ([1.0, 0.5, 0.5], [0, 1], [2, 0], {"ordered": False}, True),
        ([1.0, 1.0, 0.5], [0, 1], [1, 0], {"first": True}, False),
        ([1.0, LOW, LOW], [0, 1], [0, 2], {}, True),
        ([1.0, NAN, 1.0], [0, 2], [2, 0], {}, False),
        ([3, 3, 1], [0, 1], [1, 0], {}, True),
        ([2**60, 2**60 + 1, 1], [1, 0], [0, 1], {}, False),
    ],
)
def test_a_choice_is_held_against_eagers_scores(
    scores: list[float], eagers: list[int], files: list[int], options: dict[str, bool], tied: bool
) -> None:
    rows = (torch.tensor([scores]), torch.tensor([eagers]), torch.tensor([files]))
    assert (gap_of(*rows, **{"ordered": True, "first": False, **options}) is not None) == tied
