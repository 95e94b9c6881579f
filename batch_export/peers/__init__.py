"""Other people's exporters as points on the exporter axis: callables that write an ONNX file. Outside our core."""
