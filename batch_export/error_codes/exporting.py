"""BE2xx: the exporter core, by its stages; BE22x: what runs a file."""

from __future__ import annotations

from batch_export.error_codes.explanation import Explanation, Kind

EXPORTING = (
    Explanation(
        "BE200",
        "OnnxExporterError",
        "The exporter was asked for something that it cannot do",
        "Base of BE201 to BE209, and itself raised where an argument of `export` fits no stage. `except "
        "OnnxExporterError` catches them all; node, operator, source line and next step are its attributes.",
        Kind.PYTHON,
        """
import torch, batch_export

batch_export.export(torch.nn.ReLU(), (torch.ones(2),), input_names=["a", "b", "c"])
""",
        "The sentence says which argument, and what would fit.",
    ),
    Explanation(
        "BE201",
        "CaptureError",
        "torch.export, and every other way to capture, could not turn the model into a program",
        "The model does what a graph cannot hold: Python that depends on the values of tensors, libraries outside "
        "torch, or it fails on the example inputs itself. The error shown is that of the first strategy; "
        "`error.attempts` has them all.",
        Kind.PYTHON,
        """
import torch, batch_export


class Model(torch.nn.Module):
    def forward(self, x):
        raise NotImplementedError("later")


batch_export.export(Model(), (torch.ones(2),))
""",
        "Run the model on the example inputs first. Replace branches on data by torch.where or torch.cond.",
    ),
    Explanation(
        "BE202",
        "DynamicShapeError",
        "The dynamic shapes asked for are malformed, or the model fixes an axis that was asked for as dynamic",
        "A branch on a size, a fixed reshape or a constant of a fixed length holds for some sizes only. A file that is "
        "wrong at other sizes is refused.",
        Kind.PYTHON,
        """
import torch, batch_export


class Model(torch.nn.Module):
    def forward(self, x):
        return x + torch.ones(3)


batch_export.export(Model(), (torch.ones(3),), dynamic_shapes=({0: "length"},))
""",
        "The sentence names axis, guard and line: leave that axis out of dynamic_shapes, or write that line for every "
        "size. guards='allow' accepts a restricted range, and writes it into the file's metadata.",
    ),
    Explanation(
        "BE203",
        "DecompositionError",
        "An operator could not be decomposed or made functional",
        "The operator has no translation of its own, and torch's decomposition of it fails, or it writes to its "
        "arguments in a way that torch cannot turn into a value.",
        Kind.PYTHON,
        """
from batch_export.errors import DecompositionError

raise DecompositionError("aten.foo.default has no form without a write", operator="aten.foo.default")
""",
        "Give the operator a translation with custom_translation_table, or rewrite the line that the error names.",
    ),
    Explanation(
        "BE204",
        "TranslationError",
        "A node of the captured program could not be turned into ONNX nodes",
        "ONNX cannot say this operator with these arguments (a dtype, a rank, a mode), or a translation that was "
        "passed in fails.",
        Kind.PYTHON,
        """
import torch, batch_export


def broken(x):
    raise ValueError("not today")


batch_export.export(torch.nn.Tanh(), (torch.ones(2),), custom_translation_table={torch.ops.aten.tanh.default: broken})
""",
        "Node, operator and line are in the sentence: rewrite that line, or pass a translation of your own.",
    ),
    Explanation(
        "BE205",
        "MissingOperatorError",
        "Operators of the program have no translation",
        "Custom operators need one from you; for torch's own, ours, onnxscript's and torch's decompositions were "
        "tried. All of them are listed at once, in `error.operators`.",
        Kind.PYTHON,
        """
import torch, batch_export


@torch.library.custom_op("explained::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


twice.register_fake(torch.empty_like)


class Model(torch.nn.Module):
    def forward(self, x):
        return twice(x)


batch_export.export(Model(), (torch.ones(2),))
""",
        "Pass custom_translation_table={torch.ops.explained.twice.default: function}, or rewrite that part.",
    ),
    Explanation(
        "BE206",
        "OpsetError",
        "The opset asked for is out of range, or cannot be reached exactly",
        "The file has exactly the opset that was asked for, or there is none: an operator in it may exist in newer "
        "opsets only.",
        Kind.PYTHON,
        """
import torch, batch_export

batch_export.export(torch.nn.ReLU(), (torch.ones(2),), opset_version=3)
""",
        "Choose an opset of the range that the sentence names.",
    ),
    Explanation(
        "BE207",
        "OptimisationError",
        "A pass of the optimiser failed",
        "A pass that was passed in raised or left a broken graph; ours are tested, and one that fails is a defect to "
        "be reported.",
        Kind.PYTHON,
        """
import onnx_ir, torch, batch_export


class Broken(onnx_ir.passes.InPlacePass):
    def call(self, model):
        raise RuntimeError("not today")


batch_export.export(torch.nn.ReLU(), (torch.ones(2),), passes=[Broken()])
""",
        "Mend the pass, or leave it out of `passes`; optimize=False leaves all of them out.",
    ),
    Explanation(
        "BE208",
        "SaveError",
        "The ONNX program could not be written",
        "The folder does not exist or cannot be written, the disk is full, or the file would be larger than its format "
        "allows.",
        Kind.PYTHON,
        """
import torch, batch_export

batch_export.export(torch.nn.ReLU(), (torch.ones(2),), "/dev/null/model.onnx")
""",
        "Choose a folder that can be written; external_data=True for weights beyond 2 GB.",
    ),
    Explanation(
        "BE209",
        "VerificationError",
        "The exported model does not do what the original does",
        "The file was run beside the model and differed by more than the tolerance, or it cannot be run. Output, place "
        "and values are in the sentence.",
        Kind.PYTHON,
        """
import torch, batch_export
from onnxscript import opset18 as op


def wrong(x):
    return op.Sigmoid(x)


table = {torch.ops.aten.tanh.default: wrong}
batch_export.export(torch.nn.Tanh(), (torch.ones(2),), custom_translation_table=table, verify=True)
""",
        "A translation of your own is the first suspect. Otherwise this is a defect of the exporter: `bisect` and "
        "`repro` find the node.",
    ),
    Explanation(
        "BE211",
        "ExportWarning",
        "A warning: the file holds, and something of the model is not in it",
        "forward changes a plain attribute, which a file cannot keep; a size of 1 would drop an axis; two axes of "
        "different names are one; the file has a limit of sizes that the model has not; or a capture took something "
        "about the data for granted, which guards='allow' let through.",
        Kind.PYTHON,
        """
import torch, warnings, batch_export


class Model(torch.nn.Module):
    steps = 0

    def forward(self, x):
        self.steps += 1
        return x + self.steps


warnings.simplefilter("error", batch_export.ExportWarning)
batch_export.export(Model(), (torch.ones(2),))
""",
        "Make the attribute a buffer, whose new value is an output of the file; or filter the warning if it is meant.",
    ),
    Explanation(
        "BE212",
        "NoFormError",
        "An operator of the model cannot be written at the opset asked for",
        "Operators come and change with the opsets. What a file needs is written with what the opset has; where that "
        "is not possible there is no file. docs/opsets.md has every operator at every opset.",
        Kind.PYTHON,
        """
import onnx, onnx_ir
from batch_export.legalise.chain import legalise

text = '<ir_version: 9, opset_import: ["" : 20]> g (string[2] x) => (string[2] y) { y = StringConcat (x, x) }'
legalise(onnx_ir.serde.deserialize_model(onnx.parser.parse_model(text)), start=20, target=13)
""",
        "The sentence names the operator, its line and the nearest opset at which it has a form: choose that one, or "
        "rewrite the line.",
    ),
    Explanation(
        "BE221",
        "ProviderUnavailableError",
        "The execution provider is not part of this runtime",
        "onnxruntime was built without it, or its device is missing. In a sweep cells are skipped with that reason.",
        Kind.PYTHON,
        """
import pathlib, tempfile
from onnx import helper, save
from batch_export.runtime.session import open_session
from batch_export.runtime.provider_spec import ProviderSpec

path = pathlib.Path(tempfile.mkdtemp()) / "empty.onnx"
save(helper.make_model(helper.make_graph([], "g", [], []), ir_version=10), path)
open_session(path, ProviderSpec("mine", "onnxruntime", "NoSuchExecutionProvider"), threads=1)
""",
        "Install the build of onnxruntime that has it, or leave the provider out of the matrix.",
    ),
    Explanation(
        "BE222",
        "LoadError",
        "The runtime does not load the file",
        "An operator or a dtype that it has no kernel for, an opset that it does not know, or a file that is not ONNX.",
        Kind.EXPORTER,
        """
import onnx


def write(module, args, kwargs, *, path, opset_version, **options):
    x = onnx.helper.make_tensor_value_info("input", onnx.TensorProto.FLOAT, ["batch", 4])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 4])
    node = onnx.helper.make_node("NoSuchOperator", ["input"], ["y"], domain="nobody")
    opsets = [onnx.helper.make_opsetid("", opset_version), onnx.helper.make_opsetid("nobody", 1)]
    graph = onnx.helper.make_graph([node], "g", [x], [y])
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
""",
        "The runtime's own words are in the sentence. Another opset, or the provider cpu_unoptimised, may tell more.",
        also=("Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NotImplemented", "RuntimeException"),
    ),
    Explanation(
        "BE223",
        "FeedError",
        "Inputs cannot be given to the file",
        "Their number, names or dtypes are not those of the file's inputs.",
        Kind.PYTHON,
        """
from batch_export.runtime.feeds import feeds_for

feeds_for(["input", "mask"], {"input": 1})
""",
        "Compare with the file's inputs, which the sentence lists.",
    ),
    Explanation(
        "BE224",
        "TensorFileError",
        "A file of stored tensors cannot be read",
        "It was cut off or overwritten; the store makes it again.",
        Kind.PYTHON,
        """
import pathlib, tempfile
from batch_export.runtime.tensor_file import TensorFile

path = pathlib.Path(tempfile.mkdtemp()) / "tensors"
path.write_bytes(b"not tensors")
TensorFile(path)
""",
        "Nothing in a sweep. A file that you wrote yourself: write it again.",
    ),
)
"""By rising code."""
