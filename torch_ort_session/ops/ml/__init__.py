"""Kernels of the ai.onnx.ml domain, one family a file."""
