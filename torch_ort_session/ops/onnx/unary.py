"""Elementwise functions of one tensor.

Sources: https://onnx.ai/onnx/operators/onnx__Abs.html and the page of each operator
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.common.widen import FLOAT8, UNSIGNED
from torch_ort_session.ops.kernel import kernel


@kernel("Abs", since=(1, 6, 13))
def abs_(x: Tensor, *, consumed_inputs: list[int] | None = None) -> Tensor:
    """Absolute value of every number type; the smallest signed integer stays as it is."""
    if x.dtype in UNSIGNED:
        return x.clone()
    return torch.abs(x)


@kernel("Neg", since=(1, 6, 13))
def neg(x: Tensor, *, consumed_inputs: list[int] | None = None) -> Tensor:
    """``-x`` of floats and signed integers."""
    return torch.neg(x)


@kernel("Ceil", since=(1, 6, 13))
def ceil(x: Tensor, *, consumed_inputs: list[int] | None = None) -> Tensor:
    """The next integer upwards, as a float."""
    return torch.ceil(x)


@kernel("Floor", since=(1, 6, 13))
def floor(x: Tensor, *, consumed_inputs: list[int] | None = None) -> Tensor:
    """The next integer downwards, as a float."""
    return torch.floor(x)


@kernel("Round", since=(11, 22))
def round_(x: Tensor) -> Tensor:
    """The nearest integer, halves to the even one, as a float."""
    return torch.round(x)


@kernel("Sqrt", since=(1, 6, 13))
def sqrt(x: Tensor, *, consumed_inputs: list[int] | None = None) -> Tensor:
    """Square root of floats; NaN for negative numbers."""
    return torch.sqrt(x)


@kernel("Exp", since=(1, 6, 13))
def exp(x: Tensor, *, consumed_inputs: list[int] | None = None) -> Tensor:
    """``e ** x`` of floats."""
    return torch.exp(x)


@kernel("Log", since=(1, 6, 13))
def log(x: Tensor, *, consumed_inputs: list[int] | None = None) -> Tensor:
    """Natural logarithm of floats."""
    return torch.log(x)


@kernel("Reciprocal", since=(1, 6, 13))
def reciprocal(x: Tensor, *, consumed_inputs: list[int] | None = None) -> Tensor:
    """``1 / x`` of floats."""
    return torch.reciprocal(x)


@kernel("Sin", since=(7, 22))
def sin(x: Tensor) -> Tensor:
    """Sine of floats."""
    return torch.sin(x)


@kernel("Cos", since=(7, 22))
def cos(x: Tensor) -> Tensor:
    """Cosine of floats."""
    return torch.cos(x)


@kernel("Tan", since=(7, 22))
def tan(x: Tensor) -> Tensor:
    """Tangent of floats."""
    return torch.tan(x)


@kernel("Asin", since=(7, 22))
def asin(x: Tensor) -> Tensor:
    """Inverse sine of floats; NaN outside of [-1, 1]."""
    return torch.asin(x)


@kernel("Acos", since=(7, 22))
def acos(x: Tensor) -> Tensor:
    """Inverse cosine of floats; NaN outside of [-1, 1]."""
    return torch.acos(x)


@kernel("Atan", since=(7, 22))
def atan(x: Tensor) -> Tensor:
    """Inverse tangent of floats."""
    return torch.atan(x)


@kernel("Sinh", since=(9, 22))
def sinh(x: Tensor) -> Tensor:
    """Hyperbolic sine of floats."""
    return torch.sinh(x)


@kernel("Cosh", since=(9, 22))
def cosh(x: Tensor) -> Tensor:
    """Hyperbolic cosine of floats."""
    return torch.cosh(x)


@kernel("Asinh", since=(9, 22))
def asinh(x: Tensor) -> Tensor:
    """Inverse hyperbolic sine of floats."""
    return torch.asinh(x)


@kernel("Acosh", since=(9, 22))
def acosh(x: Tensor) -> Tensor:
    """Inverse hyperbolic cosine of floats; NaN below 1."""
    return torch.acosh(x)


@kernel("Atanh", since=(9, 22))
def atanh(x: Tensor) -> Tensor:
    """Inverse hyperbolic tangent of floats; NaN outside of [-1, 1]."""
    return torch.atanh(x)


@kernel("Erf", since=(9, 13))
def erf(x: Tensor) -> Tensor:
    """The error function; of integers (revision 9) it is computed in float32 and rounded towards zero."""
    if x.dtype.is_floating_point:
        return torch.erf(x)
    return torch.erf(x.to(torch.float32)).to(x.dtype)


@kernel("Sign", since=(9, 13))
def sign(x: Tensor) -> Tensor:
    """-1, 0 or 1 in the dtype of ``x``; NaN stays NaN."""
    if x.dtype in UNSIGNED:
        return torch.ne(x, 0).to(x.dtype)
    if x.dtype.is_floating_point:
        # torch.sign makes 0 of NaN; adding the product with 0 would spoil infinities.
        return torch.where(torch.isnan(x), x, torch.sign(x))
    return torch.sign(x)


@kernel("IsNaN", since=(9, 13, 20))
def is_nan(x: Tensor) -> Tensor:
    """Where a float of any width is NaN, as bools."""
    return torch.isnan(x)


@kernel("IsInf", since=(10, 20))
def is_inf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    """Where a float of any width is infinite, as bools.

    Args:
        x: Floats.
        detect_negative: Whether negative infinity counts.
        detect_positive: Whether positive infinity counts.
    """
    if x.dtype in FLOAT8:
        x = x.to(torch.float32)
    if detect_positive:
        # Two passes that torch has vector instructions for: half the time of its isinf.
        return torch.isposinf(x.abs() if detect_negative else x)
    return torch.isneginf(x) if detect_negative else torch.zeros_like(x, dtype=torch.bool)
