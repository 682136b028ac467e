"""Caller-owned tensors as inputs, outputs, states."""
