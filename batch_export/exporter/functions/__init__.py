"""Calls of modules as functions of an ONNX model."""
