"""ONNX's operators as functions, for code that runs under the recorder.

onnxscript annotates them with ONNX's tensor types; here they also take Python numbers and lists, which the recorder
turns into constants, so they are deliberately untyped.
"""

from __future__ import annotations

from typing import Any

from onnxscript.onnx_opset import opset18, opset20, opset21, opset23

op: Any = opset18
"""The opset that translations are written in."""

op20: Any = opset20
"""For operators that opset 20 introduced."""

op21: Any = opset21
"""For operators that opset 21 introduced, or gave another meaning."""

op23: Any = opset23
"""For operators that opset 23 introduced."""
