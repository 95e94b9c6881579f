"""ONNX's operators as functions, for code that runs under the recorder.

onnxscript annotates them with ONNX's tensor types; here they also take Python numbers and lists, which the recorder
turns into constants, so what they take is deliberately untyped.
"""

from __future__ import annotations

from typing import cast

from onnxscript.onnx_opset import opset18, opset20, opset21, opset23, opset26

from batch_export.exporter.graph.recorded_value import Operators

op = cast(Operators, opset18)
"""The opset that translations are written in."""

op20 = cast(Operators, opset20)
"""For operators that opset 20 introduced."""

op21 = cast(Operators, opset21)
"""For operators that opset 21 introduced, or gave another meaning."""

op23 = cast(Operators, opset23)
"""For operators that opset 23 introduced."""

op26 = cast(Operators, opset26)
"""For operators that opset 26 introduced."""
