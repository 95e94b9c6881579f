"""What a child finds out about a model by running it: inputs, free axes, ranges, outputs, and what is no model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from batch_export.errors import ModelError
from batch_export.spec import InputSpec
from batch_export.stages.probe.answer import probed
from batch_export.stages.probe_request import Probed, ProbeRequest
from batch_export.sweeps.model_words import request_of

MODULE = """
import torch

class Words(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rows, self.cell = torch.nn.Embedding(50, 8), torch.nn.GRU(8, 6, batch_first=True)
    def forward(self, tokens, attention_mask):
        found, _ = self.cell(self.rows(tokens))
        if not bool(attention_mask.all()):
            found = found * attention_mask[..., None]
        return {"states": found, "last": found[:, -1]}

class Two(torch.nn.Module):
    def forward(self, x, y):
        return torch.cat([x + y, x], 1)

def image():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 4, stride=4), torch.nn.Flatten(2))

def patches():
    return torch.nn.Sequential(torch.nn.PixelUnshuffle(4), torch.nn.Conv2d(48, 2, 1))

def fixed():
    return torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(2 * 26 * 26, 5))

class Rows(torch.nn.Module):
    def forward(self, x, y):
        return x.reshape(x.shape[0], 4, 8) + y[:, None, :8]

def with_inputs():
    return torch.nn.Linear(4, 2), (torch.ones(3, 4),)

def number():
    return 3

def broken():
    raise ValueError("no weights")

there = torch.nn.Linear(4, 2)
"""


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "to_probe", raising=False)
    (tmp_path / "to_probe.py").write_text(MODULE)


def asked(name: str, *inputs: InputSpec, **sizes: int) -> Probed:
    return probed(ProbeRequest("mine", f"to_probe.{name}", inputs=inputs, sizes=sizes))


def unsized(name: str, *words: str) -> Probed:
    return probed(request_of("mine", f"to_probe:{name}", words, []))


def shapes(found: Probed) -> dict[str, tuple[int | str, ...]]:
    return {"_".join(map(str, leaf.path)): leaf.shape for leaf in found.inputs}


def test_tokens_are_found_with_their_range_and_a_mask_shares_their_axes() -> None:
    found = asked("Words")
    assert shapes(found) == {"tokens": ("batch", "seq"), "attention_mask": ("batch", "seq")}
    tokens, mask = found.inputs
    assert (tokens.dtype, tokens.low, tokens.high) == ("int64", 0.0, 50.0)
    assert (mask.dtype, mask.fill) == ("int64", 1.0)
    assert found.outputs == ("states: float32[batch, seq, 6]", "last: float32[batch, 6]")
    assert {axis.name for axis in found.axes} == {"batch", "seq"}
    assert any("guess" in note for note in found.notes)


def test_images_have_free_sides_of_different_check_sizes() -> None:
    found = asked("image")
    assert shapes(found) == {"input": ("batch", 3, "height", "width")}
    sizes = {axis.name: axis.check for axis in found.axes}
    assert all(one != other for one, other in zip(sizes["height"], sizes["width"], strict=True))
    assert found.outputs == ("output 0: float32[batch, 4, ?]",)


def test_sizes_that_only_run_in_multiples_are_told() -> None:
    found = asked("patches", InputSpec(("input",), "float32", (2, 3, 16, 16)))
    assert shapes(found) == {"input": ("batch", 3, "height", "width")}
    (height,) = (axis for axis in found.axes if axis.name == "height")
    assert all(size % 4 == 0 for size in height.check)
    assert any(note.startswith("height: not every size runs") for note in found.notes)
    assert found.outputs == ("output 0: float32[batch, 2, height//4, width//4]",)


def test_what_is_fixed_stays_a_number() -> None:
    assert shapes(asked("fixed")) == {"input": ("batch", 1, 28, 28)}
    found = asked("fixed", InputSpec(("input",), "float32", ("batch", 1, "side", "side")), batch=2, side=28)
    assert shapes(found) == {"input": ("batch", 1, 28, 28)}
    assert any(note.startswith("side stays 28: the model runs at no other size") for note in found.notes)


def test_sizes_that_nobody_gave_are_found_by_trying_and_told() -> None:
    found = unsized("patches", "input=float32[batch,3,H,W]")
    assert {axis.name: axis.example for axis in found.axes} == {"batch": 2, "H": 64, "W": 64}
    assert found.notes[0] == "Sizes found by running the model: batch=2, H=64, W=64."
    found = unsized("fixed", "input=float32[batch,1,H,W]")
    assert shapes(found) == {"input": ("batch", 1, 28, 28)}
    assert found.notes[0].startswith("Sizes found by running the model: batch=2, H=28, W=28 (at batch=2, H=64, W=64: ")
    assert "mat1 and mat2 shapes cannot be multiplied" in found.notes[0]


def test_lengths_are_tried_each_on_its_own() -> None:
    found = unsized("Rows", "x=float32[batch,n]", "y=float32[batch,m]")
    assert shapes(found)["x"] == ("batch", 32)
    assert found.notes[0].startswith("Sizes found by running the model: batch=2, n=32, m=")


def test_sizes_that_are_not_found_are_one_sentence() -> None:
    with pytest.raises(ModelError) as raised:
        unsized("fixed", "input=float32[batch,2,H,W]")
    assert "does not run at input=float32[2, 2, 64, 64]: RuntimeError" in str(raised.value)
    assert "other sizes of batch, H, W that were tried). Next step: give other sizes" in str(raised.value)


def test_a_size_that_was_given_stays() -> None:
    with pytest.raises(ModelError, match=r"does not run at input=float32\[2, 1, 20, 64\]"):
        unsized("fixed", "input=float32[batch,1,H=20,W]")


def test_dimensions_that_change_together_are_one_axis() -> None:
    leaves = [InputSpec((name,), "float32", (2, 5)) for name in "xy"]
    assert shapes(asked("Two", *leaves)) == {"x": ("batch", "length"), "y": ("batch", "length")}


def test_a_module_and_a_pair_get_a_builder() -> None:
    for name, body in (("there", "return found\n"), ("with_inputs", "return found(**arguments)[0]\n")):
        found = asked(name)
        assert found.target == "mine_builder.build"
        assert found.builder.endswith(body)
        Path("mine_builder.py").write_text(found.builder)
        sys.modules.pop("mine_builder", None)
        assert shapes(probed(ProbeRequest("again", found.target))) == {"input": ("batch", 4)}
    (axis,) = asked("with_inputs").axes
    assert axis.example == 3, "inputs that came with the module are what it is run at"


@pytest.mark.parametrize(
    ("name", "inputs", "said"),
    [
        ("number", (), "returned a int; it must return a torch.nn.Module"),
        ("broken", (), "its builder to_probe.broken raised ValueError: no weights"),
        ("nothing", (), "has no 'nothing'"),
        ("Two", (InputSpec(("x",), "float32", (2, 3)),), "forward(x, y) needs y too. Next step: a further --input"),
        ("Two", (InputSpec(("z",), "float32", (2, 3)),), "forward(x, y) has no parameter 'z'"),
    ],
)
def test_what_is_no_model_is_one_sentence(name: str, inputs: Any, said: str) -> None:
    with pytest.raises(ModelError) as raised:
        asked(name, *inputs)
    assert said in str(raised.value)


def of_file(path: str) -> Probed:
    return probed(ProbeRequest("mine", path=path))


def test_an_exported_program_says_its_own_axes() -> None:
    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor, pair: dict[str, torch.Tensor]) -> torch.Tensor:
            return x + pair["y"]

    rows = torch.export.Dim("rows")
    shape = {"x": {0: rows}, "pair": {"y": {0: rows}}}
    example = (torch.ones(3, 4), {"y": torch.ones(3, 4)})
    torch.export.save(torch.export.export(Net(), example, dynamic_shapes=shape), "net.pt2")
    found = of_file("net.pt2")
    assert (found.target, found.arguments) == ("torch.export.load", {"f": "net.pt2"})
    assert shapes(found) == {"x": ("batch", 4), "pair_y": ("batch", 4)}
    assert [(axis.example, axis.check) for axis in found.axes] == [(3, (1, 5))]
    torch.export.save(torch.export.export(Net(), example), "fixed.pt2")
    assert of_file("fixed.pt2").axes == ()


def test_files_of_torch_are_told_apart() -> None:
    torch.jit.save(torch.jit.script(torch.nn.Linear(4, 2)), "scripted.pt")
    torch.save(torch.nn.Linear(4, 2), "pickled.pt")
    torch.save(torch.nn.Linear(4, 2).state_dict(), "weights.pt")
    Path("junk.pt").write_bytes(b"hello")
    Path("junk.pt2").write_bytes(b"hello")
    assert of_file("scripted.pt").target == "torch.jit.load"
    assert shapes(of_file("scripted.pt")) == {"input": ("batch", 4)}
    pickled = of_file("pickled.pt")
    assert pickled.target == "torch.load"
    assert "reading it runs what it says" in pickled.notes[0]
    for path, said in (
        ("weights.pt", r"holds weights \(weight, bias\) and no program"),
        ("junk.pt", "junk.pt is no program"),
        ("junk.pt2", "is not a program that torch.export.save wrote"),
        (".", "is no checkpoint of transformers"),
    ):
        with pytest.raises(ModelError, match=said):
            of_file(path)


def test_a_checkpoint_is_described_from_its_own_configuration() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    transformers.BertModel(transformers.BertConfig(vocab_size=40, **sizes)).save_pretrained("bert")
    found = of_file("bert")
    assert found.target == "transformers.BertModel.from_pretrained"
    assert found.requires == ("transformers",)
    assert shapes(found) == {"input_ids": ("batch", "seq"), "attention_mask": ("batch", "seq")}
    assert found.inputs[0].high == 40.0
