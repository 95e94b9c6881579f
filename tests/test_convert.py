"""`convert`: an ONNX file at another opset, as it is typed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from batch_export.cli.main import main
from batch_export.conversion import sampling
from batch_export.conversion.comparison import compared


def command(*arguments: object) -> int:
    return main(["batch-export", "convert", *map(str, arguments)])


def write(path: Path, opset: int, body: str, inputs: str, outputs: str, more: str = "", imports: str = "") -> Path:
    header = f'<ir_version: 8, opset_import: ["" : {opset}{imports}]>'
    onnx.save(onnx.parser.parse_model(f"{header} g ({inputs}) => ({outputs}) {{ {body} }} {more}"), path)
    return path


def opsets(path: Path) -> dict[str, int]:
    return {one.domain: one.version for one in onnx.load(path, load_external_data=False).opset_import}


@pytest.mark.parametrize(("start", "target"), [(18, 13), (13, 28), (9, 13), (9, 28), (13, 11), (18, 18)])
def test_a_file_is_written_at_the_opset_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], start: int, target: int
) -> None:
    file = write(tmp_path / "m.onnx", start, "y = Softplus (x)", "float[N,4] x", "float[N,4] y")
    assert command(file, "--opset", target) == 0
    made = tmp_path / f"m.opset{target}.onnx"
    assert opsets(made)[""] == target
    onnx.checker.check_model(made, full_check=True)
    said = capsys.readouterr().out
    assert f"opset {start} to {target}" in said
    assert "verified by ONNX Runtime" in said
    assert ("the reference evaluator" in said) is (target == 28)


def test_nodes_of_other_domains_are_kept_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imports = ', "theirs" : 2'
    body = "a = theirs.Thing (x)  y = Mish (a)"
    file = write(tmp_path / "m.onnx", 18, body, "float[2] x", "float[2] y", imports=imports)
    assert command(file, "--opset", 13, "--dest", tmp_path / "new" / "made.onnx") == 0
    assert opsets(tmp_path / "new" / "made.onnx") == {"": 13, "theirs": 2}
    said = capsys.readouterr().out
    assert "kept as it is: 1 node theirs.Thing" in said
    assert "not verified: the file given does not run here" in said


def test_functions_of_the_file_are_written_out(tmp_path: Path) -> None:
    body, function = "y = theirs.F (x)", '<domain: "theirs", opset_import: ["" : 18]> F (a) => (b) { b = Mish (a) }'
    imports = ', "theirs" : 1'
    file = write(tmp_path / "m.onnx", 18, body, "float[2] x", "float[2] y", function, imports)
    assert command(file, "--opset", 17) == 0
    made = onnx.load(tmp_path / "m.opset17.onnx")
    assert not made.functions
    assert "Mish" not in {node.op_type for node in made.graph.node}


@pytest.mark.parametrize(("ir_version", "kept"), [(3, False), (8, True)])
def test_an_input_with_a_default_can_still_be_given(tmp_path: Path, ir_version: int, kept: bool) -> None:
    file = write(tmp_path / "m.onnx", 11, "y = Clip (x, , hi)", "float[2] x, float hi", "float[2] y")
    model = onnx.load(file)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(1, np.float32), "hi"))
    model.ir_version = ir_version
    onnx.save(model, file)
    assert command(file, "--opset", 10) == 0
    made = onnx.load(tmp_path / "m.opset10.onnx")
    assert any("hi" in node.input for node in made.graph.node) is kept


def test_an_input_with_a_default_that_would_be_an_attribute_is_no_constant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "m.onnx", 13, "y = Squeeze (x, axes)", "float[1,4] x, int64[1] axes", "float[n] y")
    model = onnx.load(file)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0]), "axes"))
    onnx.save(model, file)
    assert command(file, "--opset", 11) == 1
    assert "Squeeze along axes that are computed has no form at opset 11" in capsys.readouterr().err


def test_large_weights_stay_beside_the_file(tmp_path: Path) -> None:
    weights = onnx.numpy_helper.from_array(np.arange(4096, dtype=np.float32), "w")
    nodes = [onnx.helper.make_node("Add", ["x", "w"], ["a"]), onnx.helper.make_node("Mish", ["a"], ["y"])]
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4096]) for name in "xy")
    graph = onnx.helper.make_graph(nodes, "g", [x], [y], [weights])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0)
    assert command(tmp_path / "m.onnx", "--opset", 14) == 0
    made = tmp_path / "m.opset14.onnx"
    assert made.with_name(f"{made.name}.data").stat().st_size >= 4 * 4096
    onnx.checker.check_model(made)


def test_what_has_no_form_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "m.onnx", 20, "y = StringConcat (x, x)", "string[2] x", "string[2] y")
    assert command(file, "--opset", 14) == 1
    said = capsys.readouterr().err
    assert "StringConcat has no form at opset 14" in said
    assert "choose opset 20" in said
    assert "BE212" in said
    assert not (tmp_path / "m.opset14.onnx").exists()


def test_below_13_what_has_no_form_is_one_sentence_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "m.onnx", 17, "y = Trilu (x)", "float[2,2] x", "float[2,2] y")
    assert command(file, "--opset", 9) == 0
    assert onnx.load(tmp_path / "m.opset9.onnx").opset_import[0].version == 9
    capsys.readouterr()
    assert command(file, "--opset", 8) == 1
    assert "Where has no form at opset 8" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "opset", "sentence"),
    [
        ("m.onnx", b"hello there", "14", "is not an ONNX model"),
        ("m.onnx", b"", "14", "is not an ONNX model"),
        ("m.onnx", None, "14", "is not a file"),
        ("m.onnx", b"", "29", "opset 29 is not one of 7 to 28"),
        ("m.onnx", b"", "6", "opset 6 is not one of 7 to 28"),
        ("m.onnx", b"", "new", "invalid int value: 'new'"),
    ],
)
def test_bad_input_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes | None, opset: str, sentence: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert command(tmp_path / name, "--opset", opset) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert "Next step: " in said
    assert len(said.strip().splitlines()) == 1


def test_a_file_is_not_overwritten_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "m.onnx", 18, "y = Mish (x)", "float[2] x", "float[2] y")
    assert command(file, "--opset", 14, "--dest", file) == 2
    assert "would be overwritten" in capsys.readouterr().err


def test_a_file_that_says_something_else_is_found(tmp_path: Path) -> None:
    one = write(tmp_path / "a.onnx", 18, "y = Exp (x)", "float[N] x", "float[N] y")
    other = write(tmp_path / "b.onnx", 18, "y = Log (x)", "float[N] x", "float[N] y")
    found = compared(one, other, (18, 18), ir.load(one).graph.inputs)
    assert any("differs in" in sentence or "NaN" in sentence for sentence in found.worse)
    same = compared(one, one, (18, 18), ir.load(one).graph.inputs)
    assert same.worse == ()
    assert same.runs == 6


def test_inputs_have_the_dtypes_and_sizes_of_the_file() -> None:
    text = '<ir_version: 8, opset_import: ["" : 18]> g (bfloat16[N,2] a, int32[3] b, bool[N] c) => (bool[N] y) '
    model = ir.serde.deserialize_model(onnx.parser.parse_model(text + "{ y = Not (c) }"))
    made = sampling.feeds(model.graph.inputs, 5, 0)
    assert made["a"].shape == (5, 2)
    assert made["b"].dtype == np.int32
    assert set(np.unique(made["b"])) <= {0, 1}
    assert made["c"].dtype == np.bool_
