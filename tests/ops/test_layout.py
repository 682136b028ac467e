"""Images on the CPU: convolutions turn them where that is faster, and what comes after leaves them so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
import torch
from textmodel import model
from torch import Tensor

import torch_ort_session as tos
from torch_ort_session.ops.onnx.activation import leaky_relu
from torch_ort_session.ops.onnx.clip import clip
from torch_ort_session.ops.onnx.concat import concat
from torch_ort_session.ops.onnx.images.conv import conv, conv_transpose
from torch_ort_session.ops.onnx.images.layout import (
    channels_last,
    convolution,
    is_channels_last,
    is_channels_last_1d,
)
from torch_ort_session.ops.onnx.images.pool import average_pool
from torch_ort_session.ops.onnx.images.pool_max import max_pool_1
from torch_ort_session.ops.onnx.images.resize import resize
from torch_ort_session.ops.onnx.norm_batch import batch_normalization
from torch_ort_session.ops.onnx.pad import pad


def image(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Values of which products and sums are exact, whatever their order."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-4, 5, shape, generator=generator).to(dtype)


# Of x and w: strides, dilations, groups, and whether it goes channels last.
CHOICES = {
    "few channels of a large image": ((1, 3, 96, 96), (8, 3, 3, 3), 1, 1, 1, True),
    "one channel of a large image": ((1, 1, 150, 150), (8, 1, 3, 3), 1, 1, 1, True),
    "depthwise": ((1, 16, 12, 12), (16, 1, 3, 3), 1, 1, 16, True),
    "strided 1x1": ((1, 64, 40, 40), (8, 64, 1, 1), 2, 1, 1, True),
    "dilated": ((1, 8, 12, 12), (8, 8, 3, 3), 1, 2, 1, True),
    "small, and a weight of its size": ((1, 16, 12, 12), (8, 16, 3, 3), 1, 1, 1, True),
    "several small ones": ((2, 8, 6, 6), (64, 8, 3, 3), 1, 1, 1, True),
    "large windows": ((1, 8, 12, 12), (4, 8, 5, 5), 1, 1, 1, True),
    "small, and a much larger weight": ((1, 32, 6, 6), (64, 32, 3, 3), 1, 1, 1, False),
    "few channels of a small image": ((1, 3, 24, 24), (28, 3, 3, 3), 1, 1, 1, False),
    "1x1": ((1, 16, 24, 24), (8, 16, 1, 1), 1, 1, 1, False),
}


@pytest.mark.parametrize("x_shape, w_shape, stride, dilation, groups, turns", CHOICES.values(), ids=CHOICES)
def test_the_order_follows_from_shapes(
    x_shape: tuple[int, ...], w_shape: tuple[int, ...], stride: int, dilation: int, groups: int, turns: bool
) -> None:
    x, w, b = image(*x_shape), image(*w_shape, seed=1), image(w_shape[0], seed=2)
    parts = [stride] * 2, [w_shape[-1] // 2] * 2, [dilation] * 2
    y = convolution(x, w, b, *parts, groups)
    assert is_channels_last(y) == turns
    assert torch.equal(y, torch.convolution(x, w, b, *parts, False, [0, 0], groups))


def test_a_1x1_kernel_takes_images_as_they_come() -> None:
    x, w = channels_last(image(1, 16, 24, 24)), image(8, 16, 1, 1, seed=1)
    y = convolution(x, w, None, [1, 1], [0, 0], [1, 1], 1)
    assert is_channels_last(y)
    assert torch.equal(y, torch.conv2d(x.contiguous(), w))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_go_channels_last_in_any_case(dtype: torch.dtype) -> None:
    x, w = image(1, 8, 10, 10, dtype=dtype), image(8, 8, 1, 1, dtype=dtype, seed=1)
    y = convolution(x, w, None, [1, 1], [0, 0], [1, 1], 1)
    assert is_channels_last(y)
    assert torch.equal(y, torch.conv2d(x, w))


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 1, 4, 5), (2, 3, 1, 1), (2, 3, 1, 5)])
def test_turning_keeps_the_values_and_copies_once(shape: tuple[int, ...]) -> None:
    x = image(*shape)
    once = channels_last(x)
    assert torch.equal(once, x)
    assert shape[1] == 1 or once.is_contiguous(memory_format=torch.channels_last)
    assert channels_last(once).data_ptr() == once.data_ptr()


X = channels_last(image(1, 16, 40, 40))
PLENTY = image(16).abs() + 1
KEEPING: dict[str, Callable[[Tensor], Tensor]] = {
    "conv": lambda x: conv(x, image(16, 16, 3, 3, seed=1), pads=[1, 1, 1, 1]),
    "padded on one side": lambda x: conv(x, image(16, 16, 3, 3, seed=1), pads=[0, 0, 1, 1]),
    "tiles": lambda x: conv_transpose(x, image(16, 8, 2, 2, seed=1), image(8), strides=[2, 2]),
    "uneven tiles": lambda x: conv_transpose(x, image(16, 8, 2, 3, seed=1), strides=[2, 3]),
    "max pool": lambda x: max_pool_1(x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    "max pool, padded on one side": lambda x: max_pool_1(x, kernel_shape=[2, 2], pads=[0, 0, 1, 1]),
    "mean pool": lambda x: average_pool(x, kernel_shape=[2, 2], strides=[2, 2]),
    "mean pool with pads": lambda x: average_pool(x, kernel_shape=[2, 2], pads=[0, 0, 1, 1]),
    "nearest, twice": lambda x: resize(x, None, [1, 1, 2, 2], coordinate_transformation_mode="asymmetric"),
    "nearest, to a size": lambda x: resize(x, None, None, [1, 16, 30, 50]),
    "linear": lambda x: resize(x, None, [1, 1, 2, 2], mode="linear"),
    "linear, asymmetric": lambda x: resize(
        x, None, None, [1, 16, 30, 50], mode="linear", coordinate_transformation_mode="asymmetric"
    ),
    "norm": lambda x: batch_normalization(x, PLENTY, PLENTY, PLENTY, PLENTY)[0],
    "concat": lambda x: concat(x, x + 1, axis=1),
    "pad": lambda x: pad(x, [0, 0, 1, 1, 0, 0, 1, 1]),
    "clip": lambda x: clip(x, 0.0, 6.0),
    "leaky": lambda x: leaky_relu(x),
}


@pytest.mark.parametrize("op", KEEPING.values(), ids=KEEPING)
def test_what_comes_after_leaves_images_as_they_are(op: Callable[[Tensor], Tensor]) -> None:
    y = op(X)
    assert is_channels_last(y)
    torch.testing.assert_close(y.contiguous(), op(X.contiguous()).contiguous(), rtol=1e-6, atol=1e-6)


LINES = channels_last(image(2, 16, 1, 40)).squeeze(2)
KEEPING_LINES: dict[str, Callable[[Tensor], Tensor]] = {
    "conv": lambda x: conv(x, image(16, 16, 3, seed=1), image(16), pads=[2, 2], dilations=[2]),
    "1x1 conv": lambda x: conv(x, image(16, 16, 1, seed=1)),
    "padded on one side": lambda x: conv(x, image(16, 16, 3, seed=1), pads=[2, 0]),
    "tiles": lambda x: conv_transpose(x, image(16, 8, 2, seed=1), image(8), strides=[2]),
    "norm": lambda x: batch_normalization(x, PLENTY, PLENTY, PLENTY, PLENTY)[0],
    "concat": lambda x: concat(x, x + 1, axis=2),
    "concat from behind": lambda x: concat(x, x + 1, axis=-1),
    "concat of channels": lambda x: concat(x, x + 1, axis=-2),
    "clip": lambda x: clip(x, 0.0, 6.0),
}


@pytest.mark.parametrize("op", KEEPING_LINES.values(), ids=KEEPING_LINES)
def test_what_comes_after_leaves_lines_as_they_are(op: Callable[[Tensor], Tensor]) -> None:
    y = op(LINES)
    assert is_channels_last_1d(y)
    torch.testing.assert_close(y.contiguous(), op(LINES.contiguous()).contiguous(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "shape, weight, groups, turns",
    [
        ((1, 16, 2000), (16, 16, 3), 1, True),
        ((1, 16, 40), (16, 1, 5), 16, True),
        ((4, 16, 40), (16, 16, 3), 1, True),
        ((1, 1, 640), (58, 1, 256), 1, True),
        ((1, 1, 300), (58, 1, 256), 1, False),
        ((1, 64, 4), (64, 64, 3), 1, False),
        ((1, 16, 2000), (16, 16, 1), 1, False),
    ],
)
def test_the_order_of_lines_follows_from_shapes(
    shape: tuple[int, ...], weight: tuple[int, ...], groups: int, turns: bool
) -> None:
    x, w, b = image(*shape), image(*weight, seed=1), image(weight[0], seed=2)
    y = convolution(x, w, b, [1], [1], [1], groups)
    assert is_channels_last_1d(y) == turns
    assert torch.equal(y, torch.conv1d(x, w, b, padding=1, groups=groups))


def test_gradients_are_those_of_plain_convolutions() -> None:
    x, w, b = image(2, 8, 12, 12), image(8, 8, 3, 3, seed=1), image(8, seed=2)
    found = []
    for run in (conv, torch.conv2d):
        leaves = [part.clone().requires_grad_() for part in (x, w, b)]
        loss = run(leaves[0], leaves[1], leaves[2]).square().sum()
        found.append(torch.autograd.grad(loss, leaves))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


def test_a_function_transform_goes_through() -> None:
    x, w = image(3, 2, 8, 12, 12), image(8, 8, 3, 3, seed=1)
    y = torch.vmap(lambda one: conv(one, w))(x)
    assert torch.equal(y, torch.stack([torch.conv2d(one, w) for one in x]))


@pytest.mark.parametrize("capture", ["off", "auto"])
def test_m20_results_are_contiguous(capture: Literal["off", "auto"]) -> None:
    proto = model(
        "g (float[1,8,20,20] x, float[8,8,3,3] w) => (float[1,8,18,18] y, float[1,8,18,18] z)"
        " { y = Conv(x, w) z = Relu(y) }",
    )
    session = tos.load(proto, options=tos.Options(capture=capture))
    feed = {"x": channels_last(image(1, 8, 20, 20)), "w": image(8, 8, 3, 3, seed=1)}
    for _ in range(5):
        y, z = session.run(None, feed)
        assert y.is_contiguous() and z.is_contiguous()
        assert torch.equal(y, torch.conv2d(feed["x"], feed["w"]))
