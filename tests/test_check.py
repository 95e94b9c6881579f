"""stages/check.py: every way in which a file can differ from its contract is one finding with one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest

from batch_export.contract import Contract, TensorContract
from batch_export.stages import check
from batch_export.stages.mutations import mutation_output

DOUBLE = "g (float[batch, 4] x, int64[batch] n) => (float[batch, 4] y) {y = Add(x, x)}"
INPUTS = (TensorContract("x", "float32", ("batch", 4)), TensorContract("n", "int64", ("batch",)))
OUTPUTS = (TensorContract("", "float32", None),)
GOOD = Contract(20, INPUTS, OUTPUTS)


def facts_of(folder: Path, graph: str, requested: Contract = GOOD, head: str = '10, opset_import: ["": 20]') -> Any:
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(f"<ir_version: {head}>{graph}"), path)
    output = check.execute(path, requested)
    assert output.failure is None
    return output.facts


def findings_of(folder: Path, graph: str, requested: Contract = GOOD, **options: str) -> list[tuple[str, str, str]]:
    found = facts_of(folder, graph, requested, **options)["findings"]
    return [(finding["stage"], finding["error_class"], finding["message"]) for finding in found]


def test_a_file_that_keeps_its_contract_has_no_findings(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, DOUBLE)
    assert facts["findings"] == []
    assert (facts["opset"], facts["ir_version"], facts["nodes"], facts["operators"]) == (20, 10, 1, {"Add": 1})
    assert facts["bytes"] == (tmp_path / "model.onnx").stat().st_size
    assert facts["inputs"][0] == {"name": "x", "dtype": "float32", "shape": ("batch", 4)}


@pytest.mark.parametrize(
    ("graph", "finding"),
    [
        (
            "g (float[2, 4] x, int64[batch] n) => (float[2, 4] y) {y = Add(x, x)}",
            ("dynamic", "StaticAxis", "dimension 0 of input 'x' is fixed at 2, asked for as the dynamic axis 'batch'"),
        ),
        (
            "g (float[batch, m] x, int64[batch] n) => (float[batch, m] y) {y = Add(x, x)}",
            (
                "dynamic",
                "UnrequestedDynamicAxis",
                "dimension 1 of input 'x' is the symbol 'm', asked for as the fixed size 4",
            ),
        ),
        (
            "g (float[batch, 5] x, int64[batch] n) => (float[batch, 5] y) {y = Add(x, x)}",
            ("check", "ShapeMismatch", "dimension 1 of input 'x' is 5, asked for as 4"),
        ),
        (
            "g (float[batch] x, int64[batch] n) => (float[batch] y) {y = Add(x, x)}",
            ("check", "RankMismatch", "input 'x' has shape [batch], asked for as [batch, 4]"),
        ),
        (
            "g (double[batch, 4] x, int64[batch] n) => (float[batch, 4] y) {y = Cast<to=1>(x)}",
            ("check", "DtypeMismatch", "input 'x' is float64, asked for as float32"),
        ),
        (
            "g (float[batch, 4] x, int64[batch] n) => (double[batch, 4] y) {y = Cast<to=11>(x)}",
            ("check", "DtypeMismatch", "output 'y' is float64, asked for as float32"),
        ),
        (
            "g (float[batch, 4] x) => (float[batch, 4] y) {y = Add(x, x)}",
            ("check", "MissingInput", "input 'n' was asked for; the file has x"),
        ),
        (
            "g (float[batch, 4] x, int64[batch] n, float z) => (float[batch, 4] y) {y = Add(x, z)}",
            ("check", "ExtraInput", "the file has an input 'z' that was not asked for"),
        ),
        (
            "g (int64[batch] n, float[batch, 4] x) => (float[batch, 4] y) {y = Add(x, x)}",
            ("check", "InputOrder", "inputs are n, x; asked for in the order x, n"),
        ),
        (
            "g (float[batch, 4] x, int64[batch] n) => (float[batch, 4] y, float[batch, 4] z) {y = Neg(x) z = Abs(x)}",
            ("check", "ExtraOutput", "the file has an output 'z' that was not asked for"),
        ),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else "",
)
def test_one_difference_is_one_finding(tmp_path: Path, graph: str, finding: tuple[str, str, str]) -> None:
    assert findings_of(tmp_path, graph) == [finding]


def test_the_opset_must_be_exactly_the_one_asked_for(tmp_path: Path) -> None:
    found = findings_of(tmp_path, DOUBLE, head='10, opset_import: ["": 18]')
    assert found == [("opset", "OpsetMismatch", "opset 20 was asked for, the file has opset 18")]


def test_two_versions_of_the_opset_are_found(tmp_path: Path) -> None:
    ((stage, error_class, message),) = findings_of(tmp_path, DOUBLE, head='10, opset_import: ["": 20, "ai.onnx": 13]')
    assert (stage, error_class) == ("opset", "OpsetMismatch")
    assert message.startswith("the file has opset 20 and, by another name of the same domain ('' and 'ai.onnx'), 13;")
    assert findings_of(tmp_path, DOUBLE, head='10, opset_import: ["": 20, "ai.onnx": 20]') == []


def test_inputs_with_a_default_value_are_extra_inputs_where_they_need_not_be_inputs(tmp_path: Path) -> None:
    graph = (
        "g (float[batch, 4] x, int64[batch] n, float[4] a, float[4] b, float[4] c, float[4] d) => (float[batch, 4] y)"
        " <float[4] a = {1, 2, 3, 4}, float[4] b = {1, 2, 3, 4}, float[4] c = {1, 2, 3, 4}, float[4] d = {1, 2, 3, 4}>"
        " {p = Mul(a, b) q = Mul(c, d) r = Mul(p, q) y = Mul(x, r)}"
    )
    ((stage, error_class, message),) = findings_of(tmp_path, graph)
    assert (stage, error_class) == ("check", "ExtraInput")
    assert "default value that were not asked for (a, b, c and 1 more); callers may change them" in message
    old = Contract(8, INPUTS, OUTPUTS)
    assert findings_of(tmp_path, graph, old, head='3, opset_import: ["": 8]') == []


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        ("r = RandomUniform<shape = [1]>() y = Add(x, r)", {"RandomUniform": True}),
        ("y = RandomNormalLike(x)", {"RandomNormalLike": True}),
        ("p = Sigmoid(x) y = Bernoulli(p)", {"Bernoulli": True}),
        ("y = Dropout(x)", {}),
        ("y = Dropout(x, half)", {}),
        ("y = Dropout(x, half, no)", {}),
        ("y = Dropout(x, none, yes)", {}),
        ("y = Dropout(x, half, yes)", {"Dropout": True}),
        ("t = Constant<value = bool {1}>() y = Dropout(x, , t)", {"Dropout": True}),
        ("t = Not(no) y = Dropout(x, half, t)", {"Dropout": False}),
        (
            "y = If(yes) <then_branch = t () => (float[batch, 4] a) {a = Dropout(x, half, yes)},"
            " else_branch = e () => (float[batch, 4] b) {b = RandomUniformLike(x)}>",
            {"Dropout": True, "RandomUniformLike": True},
        ),
        ("y = own.random_walk(x)", {"Multinomial": True}),
        ("y = com.microsoft.BiasDropout(x, x, x, half, yes)", {"com.microsoft::BiasDropout": False}),
    ],
)
def test_operators_that_draw_are_told(tmp_path: Path, nodes: str, found: dict[str, bool]) -> None:
    graph = (
        "g (float[batch, 4] x, int64[batch] n) => (float[batch, 4] y)"
        f" <float half = {{0.5}}, float none = {{0}}, bool yes = {{1}}, bool no = {{0}}> {{{nodes}}}"
        ' <opset_import: ["": 20], domain: "own"> random_walk (a) => (b) {i = Multinomial(a) f = CastLike(i, a)'
        ' s = ReduceSum(f) b = Add(a, s)} <opset_import: ["": 20], domain: "own"> unused (a) => (b)'
        " {b = RandomNormalLike(a)}"
    )
    head = '10, opset_import: ["": 20, "own": 1, "com.microsoft": 1]'
    assert facts_of(tmp_path, graph, head=head)["random_operators"] == found


def test_an_ir_version_below_the_opset_is_found(tmp_path: Path) -> None:
    requested = Contract(23, INPUTS, OUTPUTS)
    assert findings_of(tmp_path, DOUBLE, requested, head='11, opset_import: ["": 23]') == []
    ((stage, error_class, message),) = findings_of(tmp_path, DOUBLE, requested, head='10, opset_import: ["": 23]')
    assert (stage, error_class) == ("check", "IrVersion")
    assert message == "opset 23 came with IR version 11, the file says IR version 10; write ir_version 11"


def test_the_checker_is_the_full_one(tmp_path: Path) -> None:
    """Without shape inference the checker lets this pass: the operator exists and its inputs have names."""
    graph = "g (float[batch, 4] x, int64[batch] n) => (float[batch, 4] y) {y = Add(x, n)}"
    ((stage, error_class, message),) = findings_of(tmp_path, graph)
    assert (stage, error_class) == ("check", "InferenceError")
    assert message.startswith("onnx's full checker: ")


def test_outputs_are_counted_and_named(tmp_path: Path) -> None:
    requested = Contract(
        20, INPUTS, (TensorContract("logits", "float32", ("batch", 4)), TensorContract("z", "int64", None))
    )
    assert [(error_class, message) for _, error_class, message in findings_of(tmp_path, DOUBLE, requested)] == [
        ("NameMismatch", "output 0 is 'y', asked for as 'logits'"),
        ("MissingOutput", "output 1 (z) is missing; the file has y"),
    ]


def test_mutations_must_be_outputs(tmp_path: Path) -> None:
    requested = Contract(20, INPUTS, OUTPUTS, mutations=("norm.mean",))
    ((_, error_class, message),) = findings_of(tmp_path, DOUBLE, requested)
    assert error_class == "MissingMutation"
    assert message.startswith("the model changes 'norm.mean', and no output of the file holds its new value")
    graph = DOUBLE.replace("y) {", "y, float[batch, 4] norm_mean_mutated) {norm_mean_mutated = Relu(x) ")
    assert findings_of(tmp_path, graph, requested) == []


@pytest.mark.parametrize(
    ("mutation", "outputs", "expected"),
    [
        ("mean", ["mean"], "mean"),
        ("mean", ["mean_mutated", "mean"], "mean"),
        ("mean", ["mean_mutated"], "mean_mutated"),
        ("norm.mean", ["mutated_norm_mean"], "mutated_norm_mean"),
        ("norm.mean", ["other.norm.mean.new", "norm.mean.new"], "norm.mean.new"),
        ("mean", ["meander", "demean"], None),
        ("mean", [], None),
    ],
)
def test_which_output_holds_a_mutation(mutation: str, outputs: list[str], expected: str | None) -> None:
    assert mutation_output(mutation, outputs) == expected


def with_external_data(folder: Path, location: str, length: int = 16) -> Path:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> g (float[batch, 4] x, int64[batch] n) => (float[batch, 4] y)'
        " <float[4] w = {1, 2, 3, 4}> {y = Mul(x, w)}"
    )
    (weight,) = model.graph.initializer
    weight.CopyFrom(onnx.numpy_helper.from_array(np.ones(4, np.float32), "w"))
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", str(length))):
        weight.external_data.add(key=key, value=value)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_beside_the_file_is_fine_and_counted(tmp_path: Path) -> None:
    path = with_external_data(tmp_path, "weights.bin")
    (tmp_path / "weights.bin").write_bytes(bytes(16))
    facts = check.execute(path, GOOD).facts
    assert facts["findings"] == []
    assert facts["bytes"] == path.stat().st_size + 16


@pytest.mark.parametrize(
    ("location", "length", "sentence"),
    [
        ("/etc/weights.bin", 16, "external data '/etc/weights.bin' is not a path relative to the model's folder"),
        ("../weights.bin", 16, "external data '../weights.bin' leaves the model's folder"),
        ("absent.bin", 16, "external data 'absent.bin' is not in the model's folder"),
        ("weights.bin", 99, "external data 'weights.bin' has 16 bytes, and the model refers to 99"),
        ("link.bin", 16, "external data 'link.bin' is a symbolic link, which onnx refuses"),
    ],
)
def test_external_data_must_lie_beside_the_file(tmp_path: Path, location: str, length: int, sentence: str) -> None:
    (tmp_path / "weights.bin").write_bytes(bytes(16))
    (tmp_path / "link.bin").symlink_to(tmp_path / "weights.bin")
    (finding,) = check.execute(with_external_data(tmp_path, location, length), GOOD).facts["findings"]
    assert finding["error_class"] == "ExternalData"
    assert finding["message"].startswith(sentence)


def test_nodes_are_counted_in_subgraphs_too(tmp_path: Path) -> None:
    graph = """g (float[batch, 4] x, int64[batch] n, bool c) => (float[batch, 4] y) {
        y = If(c) <then_branch = t () => (float[batch, 4] a) {a = Relu(x)},
                   else_branch = e () => (float[batch, 4] b) {m = Neg(x) b = Relu(m)}>
    }"""
    facts = facts_of(tmp_path, graph, Contract(20, (*INPUTS, TensorContract("c", "bool", ())), OUTPUTS))
    assert (facts["nodes"], facts["operators"], facts["findings"]) == (4, {"If": 1, "Neg": 1, "Relu": 2}, [])


def test_a_file_that_is_no_model_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"\xff\xff")
    failure = check.execute(tmp_path / "model.onnx", GOOD).failure
    assert failure is not None
    assert (failure.stage, failure.message.startswith("model.onnx cannot be read as an ONNX file")) == ("check", True)
