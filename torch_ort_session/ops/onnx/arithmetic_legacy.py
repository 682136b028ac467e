"""Add, Sub, Mul, Div and Pow before opset 7: broadcast by the attributes ``axis`` and ``broadcast``.

Source: https://onnx.ai/onnx/operators/onnx__Add.html#add-6
"""

from __future__ import annotations

from torch import Tensor

from torch_ort_session.ops.common.checks import divides_integers
from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.onnx.arithmetic import add, div, mul, pow_, sub
from torch_ort_session.ops.onnx.legacy_broadcast import align


@kernel("Add", since=(1, 6))
def add_legacy(
    a: Tensor,
    b: Tensor,
    *,
    axis: int | None = None,
    broadcast: int = 0,
    consumed_inputs: list[int] | None = None,
) -> Tensor:
    """``a + b`` in the shape of ``a``, with ``b`` aligned at ``axis``; ``consumed_inputs`` has no effect.

    Raises:
        ValueError: The shapes do not fit.
    """
    return add(a, align(a, b, axis, broadcast))


@kernel("Sub", since=(1, 6))
def sub_legacy(
    a: Tensor,
    b: Tensor,
    *,
    axis: int | None = None,
    broadcast: int = 0,
    consumed_inputs: list[int] | None = None,
) -> Tensor:
    """``a - b`` in the shape of ``a``, with ``b`` aligned at ``axis``.

    Raises:
        ValueError: The shapes do not fit.
    """
    return sub(a, align(a, b, axis, broadcast))


@kernel("Mul", since=(1, 6))
def mul_legacy(
    a: Tensor,
    b: Tensor,
    *,
    axis: int | None = None,
    broadcast: int = 0,
    consumed_inputs: list[int] | None = None,
) -> Tensor:
    """``a * b`` in the shape of ``a``, with ``b`` aligned at ``axis``.

    Raises:
        ValueError: The shapes do not fit.
    """
    return mul(a, align(a, b, axis, broadcast))


@kernel("Div", since=(1, 6), checks=divides_integers, native=("check_range",))
def div_legacy(
    a: Tensor,
    b: Tensor,
    *,
    axis: int | None = None,
    broadcast: int = 0,
    consumed_inputs: list[int] | None = None,
    ctx: KernelContext,
) -> Tensor:
    """``a / b`` in the shape of ``a``, with ``b`` aligned at ``axis``.

    Raises:
        ValueError: The shapes do not fit.
    """
    return div(a, align(a, b, axis, broadcast), ctx=ctx)


@kernel("Pow", since=(1,))
def pow_legacy(x: Tensor, y: Tensor, *, axis: int | None = None, broadcast: int = 0) -> Tensor:
    """``x ** y`` in the shape of ``x``, with ``y`` aligned at ``axis``.

    Raises:
        ValueError: The shapes do not fit.
    """
    return pow_(x, align(x, y, axis, broadcast))
