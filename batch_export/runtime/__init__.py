"""F2: running ONNX files and comparing what comes out. Needs numpy and onnxruntime only, never torch."""
