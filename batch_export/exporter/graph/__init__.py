"""The ONNX graph while it is written: values, recorded nodes, sizes, weights, facts about operators."""
