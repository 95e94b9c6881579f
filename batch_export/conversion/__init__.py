"""An existing ONNX file at another opset, held against what it was."""
