"""Run ONNX models inside PyTorch."""
