"""Running ONNX files: sessions, also in processes of their own, and latency. Never needs torch."""
