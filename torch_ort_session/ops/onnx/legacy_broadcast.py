"""The broadcast of operators before opset 7: by an attribute, aligned at a named axis of the first operand.

Source: https://onnx.ai/onnx/operators/onnx__Add.html#add-6
"""

from __future__ import annotations

from torch import Tensor


def align(a: Tensor, b: Tensor, axis: int | None, broadcast: int) -> Tensor:
    """``b`` with trailing dims of 1, so that today's broadcast does what the attributes say.

    Args:
        a: First operand; the result has its shape.
        b: Second operand; its shape is a run of ``a``'s dims (or 1s there).
        axis: Dim of ``a`` where ``b``'s first dim goes; None aligns the last dims.
        broadcast: Whether shapes may differ at all.

    Raises:
        ValueError: Shapes differ without ``broadcast``, or ``b`` does not fit at ``axis``.
    """
    if a.shape == b.shape:
        return b
    if not broadcast:
        raise ValueError(
            f"Shapes {tuple(a.shape)} and {tuple(b.shape)} differ, and the attribute broadcast is not 1; "
            "before opset 7 nothing is broadcast without it."
        )
    start = a.ndim - b.ndim if axis is None else axis + a.ndim if axis < 0 else axis
    fits = 0 <= start <= a.ndim - b.ndim and all(
        have in (1, want) for have, want in zip(b.shape, a.shape[start:], strict=False)
    )
    if not fits:
        raise ValueError(
            f"The second operand's shape {tuple(b.shape)} does not fit into {tuple(a.shape)} at axis {start}."
        )
    return b.reshape(tuple(b.shape) + (1,) * (a.ndim - start - b.ndim))
