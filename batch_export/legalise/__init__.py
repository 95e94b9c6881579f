"""Rules that bring an ONNX graph from one opset to another; they know ONNX alone, neither torch nor the exporter."""
