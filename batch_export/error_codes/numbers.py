"""BE4xx: a file that was run beside eager PyTorch and does not agree with it."""

from __future__ import annotations

from batch_export.error_codes.explanation import Explanation, Kind

_WRITE = """
import onnx


def write(module, args, kwargs, *, path, opset_version, **options):
    x = onnx.helper.make_tensor_value_info("input", onnx.TensorProto.FLOAT, ["batch", 4])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 4])
    number = onnx.helper.make_tensor("number", onnx.TensorProto.FLOAT, [], [{number}])
    node = onnx.helper.make_node("Mul", ["input", "number"], ["y"])
    graph = onnx.helper.make_graph([node], "g", [x], [y], [number])
    opsets = [onnx.helper.make_opsetid("", opset_version)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
"""

NUMBERS = (
    Explanation(
        "BE401",
        "NumericMismatch",
        "An output differs from eager's by more than the tolerance",
        "|error| <= atol + rtol * |eager| does not hold, and eager in float64 does not excuse it as ordinary rounding.",
        Kind.EXPORTER,
        _WRITE.format(number="3.0"),
        "`batch-export bisect CELL` names the first node that differs and its source line. A looser tolerance for a "
        "dtype or a model is a config key.",
    ),
    Explanation(
        "BE402",
        "ValueMismatch",
        "Values of an output that have no distance differ",
        "Texts are equal or not: there is no tolerance for them.",
        Kind.PYTHON,
        """
import numpy
from batch_export.record import Cell, Record, RunFacts
from batch_export.numbers.compare import compare
from batch_export.spec import ModelSpec
from batch_export.judge.verdict import judge

run = RunFacts({}, (compare("y", numpy.array(["a", "b"], object), numpy.array(["a", "c"], object)),))
record = Record(Cell("mine", "static", 20, "cpu", "core"), "pass", runs=(run,))
found = judge(record, ModelSpec("mine", "mine.build", {}, ()), {}, ()).error_class
""",
        "`batch-export bisect CELL`. An index that depends on equal scores (argmax, top-k) may differ by right: see "
        "the values.",
    ),
    Explanation(
        "BE403",
        "NonFiniteMismatch",
        "Elements are NaN or infinite on one side only",
        "A division by zero, an overflow or a masked row that the file computes in another way.",
        Kind.EXPORTER,
        _WRITE.format(number='float("nan")'),
        "`batch-export bisect CELL`; the report says how many elements.",
    ),
    Explanation(
        "BE404",
        "NothingFinite",
        "An output has no finite value at any input, so it proves nothing",
        "NaN equals NaN and Inf equals Inf: a file that is wrong would agree as well. The model, or the inputs that "
        "its config describes, are to blame.",
        Kind.MODEL,
        """
import torch


class Model(torch.nn.Module):
    def forward(self, input):
        return input * float("nan")


def build():
    return Model()
""",
        "Give the model weights or inputs that it can compute with. `allow_nonfinite: true` in its config says that "
        "such an output is meant.",
    ),
    Explanation(
        "BE405",
        "FrozenRandomness",
        "The model gives other values each time, the file always the same",
        "Two eager runs differ by more than the tolerances, and no operator of the file draws random numbers: forward "
        "uses Python's or NumPy's generator, the clock, or an attribute that it changes. The value of the export is in "
        "the file.",
        Kind.MODEL,
        """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.sign = 1

    def forward(self, input):
        self.sign = -self.sign
        return input * self.sign


def build():
    return Model()
""",
        "Keep state in a buffer, or take it as an input and return it; draw with torch.rand and its like.",
    ),
    Explanation(
        "BE406",
        "NotReproducible",
        "The builder made other models in the steps of one cell",
        "Eager's values are of one model and the file is of another, so that a comparison says nothing: the builder "
        "drew from the clock, os.urandom, uuid, the number of its process or a generator that nobody seeded, or its "
        "tensors were never filled.",
        Kind.PYTHON,
        """
from batch_export.record import Cell, Record, RunFacts
from batch_export.numbers.compare import compare
from batch_export.spec import ModelSpec
from batch_export.judge.verdict import judge
import numpy

run = RunFacts({}, (compare("y", numpy.ones(2), numpy.ones(2)),))
extra = {"unlike_reference": {"Capture": ["tensors"]}}
record = Record(Cell("mine", "static", 20, "cpu", "core"), "pass", runs=(run,), extra=extra)
found = judge(record, ModelSpec("mine", "mine.build", {}, ()), {}, ()).error_class
""",
        "Seed what the builder draws from. torch, NumPy's and Python's global generators are seeded before it runs, "
        "and texts hash alike in every process (PYTHONHASHSEED=0).",
    ),
    Explanation(
        "BE411",
        "SizeRefused",
        "The runtime refuses the file at a size that was asked for",
        "An axis is a symbol in the file, and a node in it holds for the example's size only.",
        Kind.EXPORTER,
        """
import onnx


def write(module, args, kwargs, *, path, opset_version, **options):
    x = onnx.helper.make_tensor_value_info("input", onnx.TensorProto.FLOAT, ["batch", 4])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 4])
    batch = next(iter(kwargs.values())).shape[0]
    shape = onnx.helper.make_tensor("shape", onnx.TensorProto.INT64, [2], [batch, 4])
    nodes = [
        onnx.helper.make_node("Reshape", ["input", "shape"], ["fixed"]),
        onnx.helper.make_node("Add", ["fixed", "input"], ["y"]),
    ]
    graph = onnx.helper.make_graph(nodes, "g", [x], [y], [shape])
    opsets = [onnx.helper.make_opsetid("", opset_version)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
""",
        "See BE202: the model or the exporter fixes that axis somewhere. `bisect` names the node.",
    ),
    Explanation(
        "BE412",
        "ModelGuard",
        "The model itself rejects a size that the config wants checked",
        "Eager PyTorch raises at one of the sizes under `axes.*.check`.",
        Kind.MODEL,
        """
import torch


class Model(torch.nn.Module):
    def forward(self, input):
        if input.shape[0] == 5:
            raise ValueError("five is too many")
        return input * 2


def build():
    return Model()
""",
        "Take that size out of the axis's `check` in the model's config.",
    ),
    Explanation(
        "BE413",
        "NothingCompared",
        "No output was compared with eager, so nothing is known",
        "The file has no outputs, or none was left to compare. A cell that compared nothing does not pass.",
        Kind.PYTHON,
        """
from batch_export.record import Cell, Record
from batch_export.spec import ModelSpec
from batch_export.judge.verdict import judge

record = Record(Cell("mine", "static", 20, "cpu", "core"), "pass")
found = judge(record, ModelSpec("mine", "mine.build", {}, ()), {}, ()).error_class
""",
        "Look at the file's outputs in the cell's facts.",
    ),
    Explanation(
        "BE414",
        "BeyondGuard",
        "The file differs from eager at a size which its capture left out",
        "The model decides by a size in Python (`if frames == 2:`), so that the program is that of one branch. "
        "`batch_export.export` refuses such an axis, or warns; a sweep exports the file to see where it is right.",
        Kind.PYTHON,
        """
from batch_export.record import Cell, Record, RunFacts
from batch_export.numbers.compare import compare
from batch_export.spec import ModelSpec
from batch_export.judge.verdict import judge
import numpy

run = RunFacts({"frames": 2}, (compare("y", numpy.ones(2), numpy.zeros(2)),))
record = Record(Cell("mine", "full", 20, "cpu", "core"), "pass", runs=(run,), extra={"guards": ["frames != 2"]})
found = judge(record, ModelSpec("mine", "mine.build", {}, ()), {}, ()).error_class
""",
        "Write the decision with tensors (torch.where), or leave that size out of the axis's `check`.",
    ),
)
"""By rising code."""
