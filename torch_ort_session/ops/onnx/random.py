"""Random tensors and samples; a node that names a seed draws the same values in every run.

Source: https://onnx.ai/onnx/operators/onnx__RandomNormal.html and the pages of the other operators.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ir.types import ElementType
from torch_ort_session.ops.common.checks import check_each, looks_at_floats
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.kernel import KernelContext, Strings, kernel


@kernel("RandomNormal", since=(1, 22), varies=True)
def random_normal(
    *,
    shape: list[int],
    dtype: int = 1,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
    ctx: KernelContext,
) -> Tensor:
    """Values of a normal distribution.

    Source: https://onnx.ai/onnx/operators/onnx__RandomNormal.html

    Args:
        shape: Shape of the result.
        dtype: ONNX code of a float type.
        mean: Mean.
        scale: Standard deviation.
        seed: Seed; None takes torch's own generator.
        ctx: Gives the device.

    Raises:
        ValueError: The type is no float type.
    """
    y = torch.empty(shape, dtype=_float_type(dtype), device=ctx.device)
    return y.normal_(mean, scale, generator=ctx.generator(seed))


@kernel("RandomNormalLike", since=(1, 22), varies=True)
def random_normal_like(
    x: Tensor | Strings,
    *,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
    ctx: KernelContext,
) -> Tensor:
    """Values of a normal distribution in the shape of ``x``, and its type unless ``dtype`` names one.

    Source: https://onnx.ai/onnx/operators/onnx__RandomNormalLike.html
    """
    return _empty_like(x, dtype, ctx).normal_(mean, scale, generator=ctx.generator(seed))


@kernel("RandomUniform", since=(1, 22), varies=True)
def random_uniform(
    *,
    shape: list[int],
    dtype: int = 1,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
    ctx: KernelContext,
) -> Tensor:
    """Values of a uniform distribution in ``[low, high)``.

    Source: https://onnx.ai/onnx/operators/onnx__RandomUniform.html

    Args:
        shape: Shape of the result.
        dtype: ONNX code of a float type.
        high: Upper bound.
        low: Lower bound.
        seed: Seed; None takes torch's own generator.
        ctx: Gives the device.

    Raises:
        ValueError: The type is no float type.
    """
    y = torch.empty(shape, dtype=_float_type(dtype), device=ctx.device)
    return y.uniform_(low, high, generator=ctx.generator(seed))


@kernel("RandomUniformLike", since=(1, 22), varies=True)
def random_uniform_like(
    x: Tensor | Strings,
    *,
    dtype: int | None = None,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
    ctx: KernelContext,
) -> Tensor:
    """Values of a uniform distribution in the shape of ``x``, and its type unless ``dtype`` names one.

    Source: https://onnx.ai/onnx/operators/onnx__RandomUniformLike.html
    """
    return _empty_like(x, dtype, ctx).uniform_(low, high, generator=ctx.generator(seed))


@kernel("Bernoulli", since=(15, 22), varies=True, checks=looks_at_floats, native=("check_range",))
def bernoulli(
    x: Tensor, *, dtype: int | None = None, seed: float | None = None, ctx: KernelContext
) -> Tensor:
    """One with the probability that ``x`` holds, else zero.

    Source: https://onnx.ai/onnx/operators/onnx__Bernoulli.html

    Args:
        x: Probabilities, any float type and shape.
        dtype: ONNX code of the result's type; None takes that of ``x``.
        seed: Seed; None takes torch's own generator.
        ctx: Gives the generator.

    Returns:
        Zeros and ones in the shape of ``x``.
    """
    chances = x.detach()
    good = (chances >= 0) & (chances <= 1)
    if check_each(good, Flag.PROBABILITY, ctx):
        chances = torch.where(good, chances, 0.0)
    drawn = torch.bernoulli(chances, generator=ctx.generator(seed))
    return drawn if dtype is None else drawn.to(_type(dtype))


@kernel("Multinomial", since=(7, 22), varies=True, checks=looks_at_floats, native=("check_range",))
def multinomial(
    x: Tensor, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None, ctx: KernelContext
) -> Tensor:
    """Class indices drawn with replacement.

    Source: https://onnx.ai/onnx/operators/onnx__Multinomial.html

    Args:
        x: Unnormalised log-probabilities ``[batch, classes]``.
        dtype: ONNX code of int32 or int64.
        sample_size: Draws of each batch entry.
        seed: Seed; None takes torch's own generator.
        ctx: Gives the generator; where a row that leaves nothing to draw is reported.

    Returns:
        Indices ``[batch, sample_size]``.
    """
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    probabilities = torch.softmax(x.detach(), -1, dtype=wide)
    good = probabilities.isfinite().all(-1, keepdim=True)
    if check_each(good, Flag.DISTRIBUTION, ctx):
        probabilities = torch.where(good, probabilities, 1.0)
    drawn = torch.multinomial(probabilities, sample_size, replacement=True, generator=ctx.generator(seed))
    return drawn.to(_type(dtype))


def _empty_like(x: Tensor | Strings, dtype: int | None, ctx: KernelContext) -> Tensor:
    if dtype is not None:
        return torch.empty(tuple(x.shape), dtype=_float_type(dtype), device=ctx.device)
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise ValueError("dtype is needed where the input is of no float type.")
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _type(code: int) -> torch.dtype:
    dtype = ElementType(code).torch_dtype
    if dtype is None:
        raise ValueError(f"dtype {code} is no numeric type.")
    return dtype


def _float_type(code: int) -> torch.dtype:
    if not ElementType(code).is_float:
        raise ValueError(f"dtype {code} is not one of float, double, float16 and bfloat16.")
    return _type(code)
