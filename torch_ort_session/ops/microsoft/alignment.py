"""What aligns sequences in speech models of com.microsoft: DynamicTimeWarping, UnfoldTensor.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from torch_ort_session.ops.common import strings
from torch_ort_session.ops.kernel import kernel


@kernel(
    "DynamicTimeWarping", domain="com.microsoft", since=(1,), seam="the path's length depends on the data"
)
def dynamic_time_warping(cost: Tensor) -> Tensor:
    """The cheapest path from the first to the last element of a matrix, by steps down, right or both.

    Args:
        cost: float32 [M, N] or [1, M, N].

    Returns:
        int32 [2, steps]: the rows and the columns of the path. Where several are cheapest, the step into an
        element comes from its left unless another neighbour is cheaper than both of the rest.

    Raises:
        ValueError: The shape is another.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.DynamicTimeWarping
    """
    if cost.dim() == 3 and cost.shape[0] == 1:
        cost = cost[0]
    if cost.dim() != 2 or not cost.numel():
        raise ValueError(
            f"a cost matrix [M, N] or [1, M, N] with elements is needed, not {list(cost.shape)}."
        )
    steps = _steps(cost.detach().cpu().numpy())
    row, column = cost.shape[0] - 1, cost.shape[1] - 1
    path = [(row, column)]
    while row or column:
        step = steps[row + column, row]
        row -= int(step != 2)
        column -= int(step != 1)
        path.append((row, column))
    return torch.tensor(path[::-1], dtype=torch.int32, device=cost.device).t().contiguous()


def _steps(
    cost: np.ndarray[tuple[int, ...], np.dtype[np.float32]],
) -> np.ndarray[tuple[int, ...], np.dtype[np.int8]]:
    """How the cheapest path reaches each element: 0 from both, 1 from above, 2 from the left.

    The elements of an antidiagonal depend on the two before it alone: they are one step each.

    Returns:
        [M + N - 1, M], by antidiagonal and row.
    """
    rows, columns = cost.shape
    far = np.float32(np.inf)
    steps = np.zeros((rows + columns - 1, rows), np.int8)
    # Each has the element outside of the matrix, above its first row, in front.
    before = np.full(rows + 1, far, np.float32)
    last = before.copy()
    before[0] = 0
    for diagonal in range(rows + columns - 1):
        first, end = max(0, diagonal - columns + 1), min(rows, diagonal + 1)
        above, left, both = last[first:end], last[first + 1 : end + 1], before[first:end]
        from_both = (both < above) & (both < left)
        from_above = ~from_both & (above < both) & (above < left)
        steps[diagonal, first:end] = np.where(from_both, 0, np.where(from_above, 1, 2))
        reached = np.where(from_both, both, np.where(from_above, above, left))
        here = np.full(rows + 1, far, np.float32)
        index = np.arange(first, end)
        here[first + 1 : end + 1] = cost[index, diagonal - index] + reached
        before, last = last, here
    # The edges are reached along them alone.
    inner = np.arange(1, rows)
    steps[inner, inner] = 1
    return steps


@kernel("UnfoldTensor", domain="com.microsoft", since=(1,))
def unfold_tensor(x: Tensor, *, dim: int = -1, size: int, step: int = 1) -> Tensor:
    """All windows of a length along an axis, side by side.

    Args:
        x: Any dtype, or strings.
        dim: The axis.
        size: Elements of a window.
        step: From the start of a window to that of the next.

    Returns:
        (length - size) / step + 1 in place of the axis's length, and ``size`` as a new last dim.

    Raises:
        ValueError: A window is empty or longer than the axis.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.UnfoldTensor
    """
    if not isinstance(x, Tensor):
        return strings.by_position(unfold_tensor, x, dim=dim, size=size, step=step)
    if not 0 < size <= x.shape[dim] or step < 1:
        raise ValueError(
            f"windows of {size} elements by steps of {step} do not fit an axis of {x.shape[dim]}."
        )
    return x.unfold(dim, size, step).clone(memory_format=torch.contiguous_format)
