"""From torch's exported program to ONNX nodes."""
