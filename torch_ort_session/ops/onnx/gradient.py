"""Gradients of a part of the graph, by autograd.

Source: https://onnx.ai/onnx/operators/onnx_aionnxpreviewtraining_Gradient.html
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.kernel import KernelContext, Value, kernel


@kernel("Gradient", since=(1,), domain="ai.onnx.preview.training")
def gradient(
    *inputs: Value, xs: list[str], y: str, zs: list[str] | None = None, ctx: KernelContext
) -> tuple[Tensor | None, ...]:
    """The derivatives of the sum of ``y`` by each of ``xs``, at the values that are given.

    What lies between them is run again, so that an operator without a seed which draws at random draws anew.

    Source: https://onnx.ai/onnx/operators/onnx_aionnxpreviewtraining_Gradient.html

    Args:
        inputs: Values for ``xs``, float tensors of any shape, then for ``zs``.
        xs: Names of the values that are differentiated by.
        y: Name of the float tensor that is differentiated.
        zs: Names of the other values that ``y`` follows from.
        ctx: Holds the part of the graph between them.

    Returns:
        One tensor in the shape and dtype of each of ``xs``, None where nobody reads it; 0 where ``y`` does
        not change with it. Under grad mode they can be differentiated again.

    Raises:
        ValueError: One of ``xs`` or ``y`` is no float tensor.
    """
    higher = torch.is_grad_enabled()
    with torch.enable_grad():
        leaves = [_leaf(value, name) for name, value in zip(xs, inputs, strict=False)]
        (result,) = ctx.bodies["body"](*leaves, *inputs[len(xs) :])
        result = _float(result, y)
        wanted = [leaf for place, leaf in enumerate(leaves) if ctx.wants(place)]
        if not result.requires_grad:
            gradients = [torch.zeros_like(leaf) for leaf in wanted]
        else:
            ones = torch.ones_like(result)
            gradients = list(
                torch.autograd.grad(
                    result, wanted, ones, create_graph=higher, allow_unused=True, materialize_grads=True
                )
            )
    remaining = iter(gradients)
    return tuple(next(remaining) if ctx.wants(place) else None for place in range(len(leaves)))


def _leaf(value: Value, name: str) -> Tensor:
    """A tensor of its own to differentiate by, through which other derivatives still reach ``value``."""
    tensor = _float(value, name)
    # Autograd refuses to save inference tensors.
    tensor = tensor.clone() if tensor.is_inference() else tensor.view_as(tensor)
    return tensor if tensor.requires_grad else tensor.requires_grad_()


def _float(value: Value, name: str) -> Tensor:
    if not isinstance(value, Tensor) or not value.is_floating_point():
        kind = str(value.dtype).removeprefix("torch.") if isinstance(value, Tensor) else "no tensor"
        raise ValueError(f"{name!r} is {kind}, and only floats have derivatives")
    return value
