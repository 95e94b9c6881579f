"""peers/mobius_onnx.py: what mobius' graphs take and nobody gives is given, and what cannot be asked is refused.

mobius is a stand-in here, which writes a graph of its own from the folder, as the package does.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import onnx.parser
import onnx_ir
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from batch_export.errors import LibraryMissingError, TranslationError
from batch_export.peers import mobius_onnx
from batch_export.plugin import Wanted


class Saved(nn.Module):
    """A model as transformers has them: it can be saved, which notes something in its config."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 3)
        self.config: dict[str, Any] = {"width": 3}

    def save_pretrained(self, folder: Path) -> None:
        self.config["saved"] = True
        torch.save(self.state_dict(), folder / "weights.pt")

    def forward(self, input_ids: Tensor) -> Tensor:
        length = input_ids.shape[1]
        return self.embedding(input_ids) + torch.arange(length)[:, None] + 1  # mask and positions are transformers'


def build(folder: str, inputs: str = "", parts: int = 1) -> dict[str, onnx_ir.Model]:
    """What mobius makes of a folder: a graph with inputs of its own choice, of an older IR version."""
    weight = torch.load(Path(folder) / "weights.pt")["embedding.weight"]
    text = f"""
        <ir_version: 11, opset_import: ["": 24]>
        g (int64[b, s] input_ids, int64[b, total] attention_mask, int64[b, s] position_ids,
           float[b, 2, past, 5] past_key {inputs}) => (float[b, s, 3] logits, float[b, 2, past, 5] present)
        {{
            table = Constant<value = float[7, 3] {{{", ".join(map(str, weight.flatten().tolist()))}}}> ()
            found = Gather(table, input_ids)
            last = Constant<value_ints = [2]> ()
            added = Add(attention_mask, position_ids)
            column = Unsqueeze(added, last)
            floats = Cast<to = 1> (column)
            logits = Add(found, floats)
            present = Identity(past_key)
        }}"""
    model = onnx_ir.from_proto(onnx.parser.parse_model(text))
    return {f"part{number}": model for number in range(parts)}


@pytest.fixture
def mobius(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package mobius whose graphs take more than the model is given."""
    monkeypatch.setitem(sys.modules, "mobius", SimpleNamespace(build=build))


def wanted(path: Path, *, free: bool) -> Wanted:
    shapes = {"input_ids": {0: "batch", 1: "seq"}} if free else None
    path.mkdir(parents=True)
    return {
        "path": path / "model.onnx",
        "opset_version": 24,
        "dynamic_shapes": shapes,
        "input_names": ["ids"],
        "output_names": None,
    }


@pytest.mark.usefixtures("mobius")
@pytest.mark.parametrize("free", [False, True])
def test_what_mobius_takes_and_nobody_gives_is_what_transformers_gives(tmp_path: Path, free: bool) -> None:
    module, example = Saved(), torch.tensor([[1, 2, 6], [0, 1, 5]])
    asked = wanted(tmp_path / "out", free=free)
    mobius_onnx.export(module, (), {"input_ids": example}, **asked)
    assert module.config == {"width": 3}
    model = onnx.load(asked["path"])
    onnx.checker.check_model(model, full_check=True)
    assert model.ir_version >= onnx.helper.find_min_ir_version_for(list(model.opset_import))
    session = onnxruntime.InferenceSession(asked["path"])
    assert [(value.name, value.shape) for value in session.get_inputs()] == [
        ("ids", ["batch", "seq"] if free else [2, 3])
    ]
    assert [(value.name, value.shape) for value in session.get_outputs()] == [
        ("logits", ["batch", "seq", 3] if free else [2, 3, 3])
    ]
    for ids in (example, torch.tensor([[3]])) if free else (example,):
        expected = module(input_ids=ids).detach().numpy()
        assert session.run(None, {"ids": ids.numpy()})[0] == pytest.approx(expected, abs=1e-6)


@pytest.mark.usefixtures("mobius")
@pytest.mark.parametrize(
    ("options", "name", "sentence"),
    [
        ({"inputs": ", float[b, 4] pixels"}, "input_ids", "takes 'pixels', which is not among the model's inputs"),
        ({}, "ids", "has no input 'ids'; it takes input_ids, attention_mask, position_ids, past_key"),
        ({"parts": 2}, "input_ids", r"makes 2 files of a Saved \(part0, part1\)"),
    ],
)
def test_what_mobius_cannot_be_asked_is_refused(
    tmp_path: Path, options: dict[str, Any], name: str, sentence: str
) -> None:
    module = Saved()
    module.forward = lambda **given: module.embedding(next(iter(given.values())))  # type: ignore[method-assign]
    arguments: Any = {**wanted(tmp_path / "out", free=False), **options}
    with pytest.raises(TranslationError, match=sentence):
        mobius_onnx.export(module, (), {name: torch.tensor([[1, 2]])}, **arguments)


def test_mobius_says_which_models_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mobius", None)
    with pytest.raises(LibraryMissingError, match="exporter mobius needs the package 'mobius-onnx'"):
        mobius_onnx.export(nn.Linear(2, 2), (), {}, **wanted(tmp_path / "a", free=False))
    monkeypatch.setitem(sys.modules, "mobius", SimpleNamespace(build=build))
    with pytest.raises(TranslationError, match="writes transformers' own models, and this is a Linear"):
        mobius_onnx.export(nn.Linear(2, 2), (), {}, **wanted(tmp_path / "b", free=False))
