"""Twin of `batch_export/config/model.py`: what a file says, and the sentence for everything that it can get wrong."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from batch_export.config.model import model_spec
from batch_export.errors import UsageError
from batch_export.numbers.tolerances import Tolerance
from batch_export.spec import AxisSpec, InputSpec, ModelSpec

GOOD: dict[str, Any] = {
    "_target_": "models.text_encoders.bert",
    "description": "a sample",
    "requires": ["transformers"],
    "tags": ["text"],
    "seed": 7,
    "vocab_size": 1000,
    "inputs": {
        "input_ids": {"dtype": "int64", "shape": ["batch", "seq"], "range": [0, "vocab_size"]},
        "mask": {"dtype": "bool", "shape": ["batch", "past + seq"], "fill": True},
        "scale": {"dtype": "float32", "shape": [], "range": [-1, 0.5]},
        "mode": {"value": "fast"},
        "past": [{"key": {"dtype": "float16", "shape": ["batch", 2, "past", 8]}}, {"value": [1, 2]}],
    },
    "axes": {"batch": {"example": 2, "check": [1, 5]}, "seq": {"example": 16}, "past": {"example": 4, "check": [0]}},
    "output_names": ["hidden"],
    "allow_nonfinite": True,
    "tolerances": {"float32": {"atol": 1e-4, "rtol": 0.001}},
}


def test_a_whole_file_is_read() -> None:
    assert model_spec("sample", GOOD) == ModelSpec(
        name="sample",
        target="models.text_encoders.bert",
        arguments={"vocab_size": 1000},
        inputs=(
            InputSpec(("input_ids",), "int64", ("batch", "seq"), 0.0, 1000.0),
            InputSpec(("mask",), "bool", ("batch", "past+seq"), fill=1.0),
            InputSpec(("scale",), "float32", (), -1.0, 0.5),
            InputSpec(("mode",), constant="fast"),
            InputSpec(("past", 0, "key"), "float16", ("batch", 2, "past", 8)),
            InputSpec(("past", 1), constant=[1, 2]),
        ),
        axes=(AxisSpec("batch", 2, (1, 5)), AxisSpec("seq", 16), AxisSpec("past", 4, (0,))),
        tags=("text",),
        requires=("transformers",),
        seed=7,
        seed_given=True,
        tolerances={"float32": Tolerance(1e-4, 1e-3)},
        output_names=("hidden",),
        allow_nonfinite=True,
    )


def test_a_spec_survives_json() -> None:
    spec = model_spec("sample", GOOD)
    assert msgspec.json.decode(msgspec.json.encode(spec), type=ModelSpec) == spec


def test_a_dict_input_may_have_keys_called_like_ours() -> None:
    leaf = {"dtype": "float32", "shape": [2]}
    spec = model_spec("sample", {"_target_": "a.b", "inputs": {"x": {"value": leaf, "dtype": leaf}}})
    assert [tensor.path for tensor in spec.inputs] == [("x", "value"), ("x", "dtype")]


REMOVE = object()


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("allow_nonfinite", "yes", "'allow_nonfinite' must be true or false, not 'yes'"),
        ("tolerances", {"complex64": {"atol": 1, "rtol": 1}}, "complex outputs are judged as float32; set that"),
        ("_target_", REMOVE, "has no '_target_', the importable name of a builder"),
        ("_target_", "bert", "'_target_' must be a dotted name such as 'models.torch_basic.cnn', not 'bert'"),
        ("_target_", "tests.test_x.test_it.<locals>.build", "which other processes cannot import (a closure"),
        ("_target_", "__main__.build", "which other processes cannot import"),
        ("inputs", REMOVE, "has no 'inputs'; name every argument of forward"),
        ("inputs", 3, "'inputs' must map the parameters of forward to their specs, not the int 3"),
        (
            "inputs.mask.dtype",
            "flaot32",
            "'inputs.mask.dtype' is 'flaot32', which is not a dtype of torch; did you mean 'float32'?",
        ),
        ("inputs.mask.dtype", 1, "'inputs.mask.dtype' is 1, which is not a dtype"),
        ("inputs.mask.shape", REMOVE, "'inputs.mask' needs 'shape', a list of axis names and sizes"),
        ("inputs.mask.shape", "batch", "'inputs.mask' needs 'shape'"),
        ("inputs.mask.shape", ["batch", 1.5], "'inputs.mask.shape' holds 1.5; a shape entry is"),
        ("inputs.mask.shape", ["batch", True], "'inputs.mask.shape' holds True; a shape entry is"),
        ("inputs.mask.shape", ["batch", "2*seq"], "'inputs.mask.shape' holds '2*seq'; a shape entry is"),
        ("inputs.mask.shape", ["batch", -1], "'inputs.mask.shape' is -1, and a size there must be at least 0"),
        ("inputs.mask.shape", ["batch", 0], "input 'mask' would be empty at the example sizes"),
        ("inputs.mask.shape", ["bathc"], "the shape of input 'mask' names 'bathc', no axis; did you mean 'batch'?"),
        ("inputs.mask.shpae", ["batch"], "'inputs.mask' has the unknown key 'shpae'; did you mean 'shape'?"),
        ("inputs.mask.range", [0, 2], "'inputs.mask' has both 'range' and 'fill'; keep one"),
        ("inputs.mask.fill", "one", "'inputs.mask.fill' must be a number, not 'one'"),
        (
            "inputs.scale",
            {"dtpye": "float32", "shape": []},
            "'inputs.scale' has the unknown key 'dtpye'; did you mean 'dtype'?",
        ),
        ("inputs.scale", {"shape": [2]}, "'inputs.scale' has a 'shape' but no 'dtype'"),
        (
            "inputs.scale",
            {"value": 1, "note": 2},
            "'inputs.scale' is a constant, whose only key is 'value'; remove ['note']",
        ),
        ("inputs.scale", {"valeu": 1}, "'inputs.scale' has the unknown key 'valeu'; did you mean 'value'?"),
        ("inputs.scale", {}, "'inputs.scale' is empty; give it a dtype and a shape"),
        ("inputs.scale", 3, "'inputs.scale' must be a tensor such as {dtype: float32, shape: [batch, 8]}, not 3"),
        ("inputs.past", [], "'inputs.past' is an empty list"),
        ("inputs.past", [{"key": 3}], "'inputs.past[0]' has the unknown key 'key'"),
        ("inputs.input_ids.range", REMOVE, "'inputs.input_ids' holds integers: give 'range: [low, high]'"),
        ("inputs.input_ids.range", [0], "'inputs.input_ids.range' must be [low, high], not [0]"),
        ("inputs.input_ids.range", [5, 5], "'inputs.input_ids.range' is [5, 5]; low must be below high"),
        (
            "inputs.input_ids.range",
            [0, "vocab"],
            "names the builder argument 'vocab', not set here; did you mean 'vocab_size'?",
        ),
        ("inputs.input_ids.range", [0, None], "'inputs.input_ids.range' must hold finite numbers"),
        ("inputs.past_0_key", {"dtype": "float32", "shape": [2]}, "two inputs would both be called 'past_0_key'"),
        ("axes", [1], "'axes' must map names to sizes, not the list [1]"),
        ("axes.batch", 2, "'axes.batch' must be a mapping such as {example: 2, check: [1, 5]}, not 2"),
        ("axes.batch.exmaple", 2, "'axes.batch' has the unknown key 'exmaple'; did you mean 'example'?"),
        ("axes.batch.example", REMOVE, "'axes.batch' has no 'example'"),
        ("axes.batch.example", "2", "'axes.batch.example' must be a whole number, not '2'"),
        ("axes.batch.example", 0, "'axes.batch.example' is 0, and a size there must be at least 1"),
        ("axes.batch.check", [1, -1], "'axes.batch.check[1]' is -1, and a size there must be at least 0"),
        ("axes.batch.check", 5, "'axes.batch.check' must be a list of sizes, not 5"),
        ("axes.unused", {"example": 2}, "axis 'unused' is in no input's shape"),
        ("axes.full", {"example": 2}, "an axis cannot be called 'full', which is the name of a dynamic-shape setting"),
        ("axes.2d", {"example": 2}, "axis name '2d' must be letters, digits and '_'"),
        ("tags", "text", "'tags' must be a list of words, not 'text'"),
        ("seed", "7", "'seed' must be a whole number, not '7'"),
        (
            "tolerances.float23",
            {"atol": 0, "rtol": 0},
            "'tolerances' has the unknown key 'float23'; did you mean 'float32'?",
        ),
        ("tolerances.float32.atol", -1, "'tolerances.float32.atol' must be a finite number of at least 0, not -1"),
        (
            "tolerances.float32.atol",
            float("inf"),
            "'tolerances.float32.atol' must be a finite number of at least 0, not inf",
        ),
        (
            "tolerances.float32.atol",
            float("nan"),
            "'tolerances.float32.atol' must be a finite number of at least 0, not nan",
        ),
        ("_args_", [3], "'_args_' is a word of Hydra's instantiate, which is not used here: '_target_' is called with"),
        ("_partial_", True, "'_partial_' is a word of Hydra's instantiate"),
        ("_recursive_", True, "'_recursive_' is a word of Hydra's instantiate"),
        ("_convert_", "all", "'_convert_' is a word of Hydra's instantiate"),
        (
            "hidden",
            "???",
            "'hidden' is ???, a value that has to be given; set it here, or in a config that starts from",
        ),
        ("layers", [{"width": "???"}], "'layers[0].width' is ???, a value that has to be given"),
        ("hidden", 1 << 64, "the whole number 18446744073709551616 has more than 64 bits; write it as a text"),
        (
            "tolerances.float32.rtol",
            REMOVE,
            "'tolerances.float32.rtol' must be a finite number of at least 0, not None",
        ),
        ("tolerances.float32.tol", 1, "'tolerances.float32' has the unknown key 'tol'; did you mean"),
    ],
)
def test_what_is_wrong_ends_in_one_sentence(path: str, value: Any, sentence: str) -> None:
    config = copy.deepcopy(GOOD)
    *parents, last = path.split(".")
    node = config
    for key in parents:
        node = node[key]
    if value is REMOVE:
        del node[last]
    else:
        node[last] = value
    with pytest.raises(UsageError) as caught:
        model_spec("sample", config)
    message = str(caught.value)
    assert message.startswith("model 'sample': ")
    assert sentence in message
    assert "\n" not in message


def test_a_mistyped_reserved_key_is_suspected_when_its_owner_is_missing() -> None:
    config = {"_traget_": "a.b", "inputs": {}}
    with pytest.raises(UsageError, match="is '_traget_' mistyped"):
        model_spec("sample", config)
    with pytest.raises(UsageError, match="is 'input' mistyped"):
        model_spec("sample", {"_target_": "a.b", "input": {"x": {}}})
    inputs = {"x": {"dtype": "float32", "shape": ["batch"]}}
    with pytest.raises(UsageError, match="'batch', no axis; is 'axis' mistyped"):
        model_spec("sample", {"_target_": "a.b", "inputs": inputs, "axis": {"batch": {"example": 2}}})


@pytest.mark.parametrize("name", [".", "..", "caf\udce9"])
def test_a_name_that_is_no_folders_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="no name of a folder in UTF-8, which its exported files need"):
        model_spec(name, GOOD)
