"""Convolution and pooling of com.microsoft with the channels last.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from torch import Tensor

from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.microsoft.dense import fused_conv
from torch_ort_session.ops.onnx.images.conv import conv
from torch_ort_session.ops.onnx.images.pool_max import max_pool


@kernel("NhwcConv", domain="com.microsoft", since=(1,))
def nhwc_conv(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """Conv with the channels last.

    Args:
        x: Floats [N, D1..Dn, C].
        w: [M, K1..Kn, C / group].
        b: [M].
        auto_pad: NOTSET, VALID, SAME_UPPER or SAME_LOWER.
        dilations: Dilation by axis.
        group: Number of channel groups.
        kernel_shape: K1..Kn once more.
        pads: Begins, then ends.
        strides: Stride by axis.

    Returns:
        [N, O1..On, M].

    Raises:
        ValueError: An attribute does not fit the inputs.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.NhwcConv
    """
    y = conv(
        x.movedim(-1, 1),
        w.movedim(-1, 1),
        b,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return y.movedim(1, -1)


@kernel("NhwcMaxPool", domain="com.microsoft", since=(1,))
def nhwc_max_pool(
    x: Tensor,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    strides: list[int] | None = None,
    ctx: KernelContext,
) -> Tensor:
    """MaxPool with the channels last.

    Args:
        x: int8 or uint8 [N, D1..Dn, C] with one to three spatial axes.
        auto_pad: NOTSET, VALID, SAME_UPPER or SAME_LOWER.
        ceil_mode: Whether the last window may hang over the end.
        dilations: Dilation by axis.
        kernel_shape: Window size by axis.
        pads: Begins, then ends.
        strides: Stride by axis.
        ctx: Of the node, whose one output has no indices.

    Raises:
        ValueError: An attribute does not fit the input's spatial axes.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.NhwcMaxPool
    """
    y, _ = max_pool(
        x.movedim(-1, 1),
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
        dilations=dilations,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
        ctx=ctx,
    )
    return y.movedim(1, -1)


@kernel("NhwcFusedConv", domain="com.microsoft", since=(1,))
def nhwc_fused_conv(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    z: Tensor | None = None,
    *,
    activation: str = "",
    activation_params: list[float] | None = None,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """FusedConv with the channels of images last, and those of the weight where Conv has them.

    Args:
        x: Floats [N, D1..Dn, C].
        w: [M, C / group, K1..Kn].
        b: [M].
        z: Added before the activation, [N, O1..On, M].
        activation: Relu, Tanh, Sigmoid, LeakyRelu, Clip, HardSigmoid, or nothing.
        activation_params: Numbers of the activation, in the order of its attributes.
        auto_pad: NOTSET, VALID, SAME_UPPER or SAME_LOWER.
        dilations: Dilation by axis.
        group: Number of channel groups.
        kernel_shape: K1..Kn once more.
        pads: Begins, then ends.
        strides: Stride by axis.

    Returns:
        [N, O1..On, M].

    Raises:
        ValueError: An unknown activation, or an attribute that does not fit the inputs.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.NhwcFusedConv
    """
    y = fused_conv(
        x.movedim(-1, 1),
        w,
        b,
        None if z is None else z.movedim(-1, 1),
        activation=activation,
        activation_params=activation_params,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return y.movedim(1, -1)
