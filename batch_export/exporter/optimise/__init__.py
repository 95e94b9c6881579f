"""Passes over a finished ONNX model, and its opset."""
