"""BE3xx: a file that is not what was asked for."""

from __future__ import annotations

from batch_export.error_codes.explanation import Explanation, Kind

_START = """
import onnx, batch_export


def write(module, args, kwargs, *, path, opset_version, dynamic_shapes, **options):
    program = batch_export.export(
        module, args, kwargs=kwargs, opset_version={opset}, dynamic_shapes={shapes}, input_names=["input"]
    )
    model = program.model_proto
"""


def _write(change: str, opset: str = "opset_version", shapes: str = "dynamic_shapes") -> str:
    """An exporter that is right but for one change."""
    lines = "".join(f"    {line}\n" for line in change.strip().splitlines())
    return _START.format(opset=opset, shapes=shapes) + lines + "    onnx.save(model, path)\n"


_EXPORTER = "The exporter is wrong here: mend it. "

FILES = (
    Explanation(
        "BE301",
        "OpsetMismatch",
        "The file has another opset than the one asked for",
        "The exporter delivered what it could and did not say so. A cell of opset 20 says nothing if the file has "
        "opset 18, or a second version under the domain's other name, 'ai.onnx'.",
        Kind.EXPORTER,
        _write("pass", opset="18"),
        "Use the opset that the exporter really writes, or another exporter.",
    ),
    Explanation(
        "BE302",
        "UnknownOpset",
        "The file's opset is not known to the installed onnx",
        "It is newer than onnx, or the number is wrong.",
        Kind.EXPORTER,
        _write("model.opset_import[0].version = 99"),
        "Install a newer onnx, or ask for an older opset.",
    ),
    Explanation(
        "BE303",
        "IrVersion",
        "The file's IR version is lower than its opset needs",
        "Each opset came with an IR version; runtimes may refuse a file that says less.",
        Kind.EXPORTER,
        _write("model.ir_version = 6"),
        _EXPORTER + "The sentence names the lowest IR version that fits.",
    ),
    Explanation(
        "BE304",
        "ExternalData",
        "External data of the file is missing, too short or lies outside its folder",
        "Weights beside the file have to be in its own folder, under the name that the file gives.",
        Kind.PYTHON,
        """
import pathlib, tempfile, numpy, onnx
from batch_export.contract import Contract
from batch_export.stages.check import execute

path = pathlib.Path(tempfile.mkdtemp()) / "model.onnx"
text = '<ir_version: 10, opset_import: ["": 20]> g () => (float[2] y) { y = Neg(w) }'
model = onnx.parser.parse_model(text)
model.graph.initializer.append(onnx.numpy_helper.from_array(numpy.ones(2, numpy.float32), "w"))
onnx.save(model, path, save_as_external_data=True, location="weights", size_threshold=0)
(path.parent / "weights").unlink()
found = execute(path, Contract(opset=20, inputs=(), outputs=())).facts["findings"][0]["error_class"]
""",
        _EXPORTER + "The sentence names the tensor's location and what is wrong with it.",
    ),
    Explanation(
        "BE305",
        "ValidationError",
        "onnx's full checker refuses the file",
        "The file breaks a rule of the ONNX standard: a missing type, an unknown attribute, an input that nothing "
        "makes.",
        Kind.EXPORTER,
        _write('model.graph.node[0].input[0] = "nowhere"'),
        _EXPORTER + "The checker's own words name the node.",
    ),
    Explanation(
        "BE306",
        "InferenceError",
        "onnx's shape inference contradicts the file",
        "Types or shapes that the file promises are not those that follow from its nodes.",
        Kind.EXPORTER,
        _write("model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT32"),
        _EXPORTER + "The checker's own words name the value.",
    ),
    Explanation(
        "BE311",
        "MissingInput",
        "An input that was asked for is not in the file",
        "It was renamed, or the exporter took it for a constant.",
        Kind.EXPORTER,
        _write(
            """
model.graph.input[0].name = "renamed"
for node in model.graph.node:
    node.input[:] = ["renamed" if name == "input" else name for name in node.input]
"""
        ),
        "Have the exporter keep the names of `input_names`. An input that the model does not use can be left out of "
        "the config.",
    ),
    Explanation(
        "BE312",
        "ExtraInput",
        "The file has an input that was not asked for",
        "Often a weight or a buffer that was left without a value, or one that is an input with a default value.",
        Kind.EXPORTER,
        _write('model.graph.input.append(onnx.helper.make_tensor_value_info("more", 1, [1]))'),
        "List it in the model's `inputs`, or mend the exporter.",
    ),
    Explanation(
        "BE313",
        "InputOrder",
        "The file's inputs are in another order than asked for",
        "Callers that feed by position would feed the wrong tensors.",
        Kind.PYTHON,
        """
import pathlib, tempfile, onnx
from batch_export.contract import Contract, TensorContract
from batch_export.stages.check import execute

path = pathlib.Path(tempfile.mkdtemp()) / "model.onnx"
text = '<ir_version: 10, opset_import: ["": 20]> g (float[2] b, float[2] a) => (float[2] y) { y = Sub(a, b) }'
onnx.save(onnx.parser.parse_model(text), path)
a, b, y = (TensorContract(name, "float32", (2,)) for name in "aby")
asked = Contract(opset=20, inputs=(a, b), outputs=(y,))
found = execute(path, asked).facts["findings"][0]["error_class"]
""",
        _EXPORTER + "The sentence has both orders.",
    ),
    Explanation(
        "BE314",
        "MissingOutput",
        "An output of the model is not in the file",
        "The exporter dropped it, or gave it to nobody.",
        Kind.EXPORTER,
        _write("del model.graph.output[-1]"),
        _EXPORTER + "Outputs are counted in the order in which forward returns them.",
    ),
    Explanation(
        "BE315",
        "NameMismatch",
        "An output has another name than the config's",
        "`output_names` of the model's config are not those in the file.",
        Kind.EXPORTER,
        _write("pass"),
        "Have the exporter keep the names of `output_names`, or correct the config.",
        config="output_names: [first]",
    ),
    Explanation(
        "BE316",
        "MissingMutation",
        "A buffer or input that the model changes has no output in the file",
        "The change would be lost: a second call would start from the old value.",
        Kind.PYTHON,
        """
import pathlib, tempfile, onnx
from batch_export.contract import Contract, TensorContract
from batch_export.stages.check import execute

path = pathlib.Path(tempfile.mkdtemp()) / "model.onnx"
text = '<ir_version: 10, opset_import: ["": 20]> g (float[2] x) => (float[2] y) { y = Neg(x) }'
onnx.save(onnx.parser.parse_model(text), path)
x, y = (TensorContract(name, "float32", (2,)) for name in "xy")
asked = Contract(opset=20, inputs=(x,), outputs=(y,), mutations=("running_mean",))
found = execute(path, asked).facts["findings"][0]["error_class"]
""",
        "Use an exporter that writes changed buffers as outputs (`core` does), or a model that returns them.",
    ),
    Explanation(
        "BE317",
        "ExtraOutput",
        "The file has an output that was not asked for",
        "Neither an output of forward nor a buffer or input that forward changes.",
        Kind.EXPORTER,
        _write('model.graph.output.append(onnx.helper.make_tensor_value_info("input", 1, ["batch", 4]))'),
        _EXPORTER + "The sentence names the output.",
    ),
    Explanation(
        "BE321",
        "DtypeMismatch",
        "An input or output has another dtype than the model's",
        "A cast was left out or added.",
        Kind.EXPORTER,
        _write(
            """
name = model.graph.output[0].name
model.graph.node.append(onnx.helper.make_node("Cast", [name], ["cast"], to=11))
model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("cast", 11, ["batch", 4]))
"""
        ),
        _EXPORTER + "Complex values are pairs of floats in ONNX; that alone is not a mismatch.",
    ),
    Explanation(
        "BE322",
        "RankMismatch",
        "An input has another number of dimensions, or no shape",
        "The file leaves the rank open, or the exporter added or removed an axis.",
        Kind.EXPORTER,
        _write('model.graph.input[0].type.tensor_type.ClearField("shape")'),
        _EXPORTER + "The sentence has both shapes.",
    ),
    Explanation(
        "BE323",
        "StaticAxis",
        "An axis that was asked for as dynamic is fixed in the file",
        "The exporter, or the model, made the example's size the only one; or the file declares a fixed size for an "
        "axis of an output that has another size at other inputs, and whoever relies on what it declares is misled.",
        Kind.EXPORTER,
        _write("pass", shapes="None"),
        "See BE202 for what fixes an axis. Leave the axis out of the dynamic setting if it is meant to be fixed. The "
        "axis of an output is declared by a name, or without a size.",
    ),
    Explanation(
        "BE324",
        "UnrequestedDynamicAxis",
        "An axis that was asked for as fixed is a symbol in the file",
        "The exporter left it open; at other sizes nothing was tried.",
        Kind.PYTHON,
        """
import pathlib, tempfile, onnx
from batch_export.contract import Contract, TensorContract
from batch_export.stages.check import execute

path = pathlib.Path(tempfile.mkdtemp()) / "model.onnx"
text = '<ir_version: 10, opset_import: ["": 20]> g (float[n] x) => (float[n] y) { y = Neg(x) }'
onnx.save(onnx.parser.parse_model(text), path)
x, y = (TensorContract(name, "float32", size) for name, size in (("x", (2,)), ("y", None)))
asked = Contract(opset=20, inputs=(x,), outputs=(y,))
found = execute(path, asked).facts["findings"][0]["error_class"]
""",
        "Ask for it as dynamic, or mend the exporter.",
    ),
    Explanation(
        "BE325",
        "ShapeMismatch",
        "A size differs from what was asked for, or from eager's",
        "A fixed size in the file, or the shape of an output when it was run, is not the model's.",
        Kind.EXPORTER,
        _write(
            """
name = model.graph.output[0].name
shape = onnx.helper.make_tensor("shape", onnx.TensorProto.INT64, [1], [-1])
model.graph.initializer.append(shape)
model.graph.node.append(onnx.helper.make_node("Reshape", [name, "shape"], ["flat"]))
model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("flat", 1, ["elements"]))
"""
        ),
        _EXPORTER + "The sentence has both.",
    ),
    Explanation(
        "BE326",
        "TiedAxes",
        "Axes of one name in the file have different sizes",
        "All axes of one name are of one size by the standard, and runtimes plan their memory by that. The exporter "
        "gave two axes that may differ one name, let two names change places, or named an axis of an output after "
        "another one. Axes that the model itself makes equal, or that broadcast, are one axis by right.",
        Kind.EXPORTER,
        _write('model.graph.output[0].type.tensor_type.shape.dim[1].dim_param = "batch"'),
        _EXPORTER + "Give each axis the name that was asked for, and a name of its own to an axis that nobody named.",
    ),
    Explanation(
        "BE331",
        "NoModel",
        "The exporter wrote no ONNX file",
        "It returned without an error, and there is nothing at `path`.",
        Kind.WORDS,
        """
A stage of one's own returns no model. A plug-in that writes no file is a TranslationError (BE204).
""",
        "Write the file to `path`; external data lies beside it.",
    ),
    Explanation(
        "BE332",
        "RandomOperator",
        "The file draws random numbers, and the model draws none",
        "An operator such as RandomUniform, or a Dropout in training mode, is new at every run: that the runs of the "
        "comparison agreed says nothing of the next one.",
        Kind.EXPORTER,
        _write(
            """
name = model.graph.output[0].name
drawn = {"shape": [1], "low": 0.0, "high": 1e-9}
model.graph.node.append(onnx.helper.make_node("RandomUniform", [], ["drawn"], **drawn))
model.graph.node.append(onnx.helper.make_node("Add", [name, "drawn"], ["sum"]))
model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("sum", 1, ["batch", 4]))
"""
        ),
        _EXPORTER + "A Dropout of a model in eval mode is left out, or has no third input.",
    ),
)
"""By rising code."""
