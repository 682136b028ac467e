"""Cases of com.microsoft's ops on images: GroupNorm, NhwcConv, GridSample, CropAndResize and their like."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from opcase import OpCase, const, exact, ms, t


def group_norm(  # type: ignore[no-untyped-def]
    x, gamma, beta, skip=None, bias=None, *, activation, groups, channels_last=1, epsilon=1e-5
):
    dims = (0, 1, 2, 3) if not channels_last else (0, 3, 1, 2)
    total = exact(x).permute(dims)
    if skip is not None:
        more = exact(skip)
        total = total + (more[..., None, None] if more.dim() == 2 else more.permute(dims))
    if bias is not None:
        total = total + exact(bias)[:, None, None]
    n, c, *plane = total.shape
    parts = total.reshape(n, groups, -1)
    spread = (parts - parts.mean(-1, keepdim=True)) / (
        parts.var(-1, keepdim=True, correction=0) + epsilon
    ).sqrt()
    y = spread.reshape(n, c, *plane) * exact(gamma)[:, None, None] + exact(beta)[:, None, None]
    if activation:
        y = y * torch.sigmoid(y)
    back = (0, 2, 3, 1) if channels_last else (0, 1, 2, 3)
    results = [part.permute(back).numpy().astype(x.dtype) for part in (y, total)]
    return tuple(results) if skip is not None else results[0]


def nhwc_conv(x, w, b=None, *, strides=(1, 1), pads=(0, 0, 0, 0), group=1, **_):  # type: ignore[no-untyped-def]
    planes = F.pad(exact(x).permute(0, 3, 1, 2), (pads[1], pads[3], pads[0], pads[2]))
    y = F.conv2d(planes, exact(w).permute(0, 3, 1, 2), None if b is None else exact(b), strides, 0, 1, group)
    return y.permute(0, 2, 3, 1).numpy().astype(x.dtype)


def masked_pool(x, m, *, kernel_shape):  # type: ignore[no-untyped-def]
    """By loops over two spatial axes, with a mask for each channel."""
    n, c, h, w = x.shape
    planes = m.reshape(-1, h, w)
    kh, kw = kernel_shape
    y = np.full((n, c, h - kh + 1, w - kw + 1), np.finfo(x.dtype).min, x.dtype)
    for plane, i, j, row in np.ndindex(n * c, h - kh + 1, w - kw + 1, kh):
        b, k = divmod(plane, c)
        for column in range(kw):
            place = (i + row, j + column)
            if place != (0, 0) and planes[plane % len(planes)][place] == 0:
                break
            y[b, k, i, j] = max(y[b, k, i, j], x[b, k][place])
    return y


NHWC, NCHW = t(2, 3, 5, 8, low=-2, high=3), t(2, 8, 3, 5, low=-2, high=3)
SCALES = [t(8, low=0.5, high=2), t(8)]
BOXES = const([[0, 0, 1, 1], [0.1, -0.2, 0.9, 1.3], [0.9, 0.8, 0.1, 0.2], [0.3, 0.4, 0.3, 0.4]])
OWNERS = const([0, 1, 0, 1], "int32")
IMAGES = t(2, 3, 5, 7)
MASK = const(np.random.default_rng(3).random((1, 1, 6, 7)) > 0.3, "int32")
MASKS = const(np.random.default_rng(4).random((1, 3, 6, 7)) > 0.3, "int32")


def size(height: int, width: int) -> Any:
    return const([height, width], "int32")


CASES: tuple[OpCase, ...] = (
    ms("GroupNorm", [NHWC, *SCALES], {"groups": 4, "activation": 0}, grad=True, oracle=group_norm),
    ms("GroupNorm", [NHWC, *SCALES], {"groups": 2, "activation": 1}, grad=True, oracle=group_norm, id="silu"),
    ms(
        "GroupNorm",
        [NCHW, *SCALES],
        {"groups": 8, "activation": 1, "channels_last": 0, "epsilon": 0.01},
        oracle=group_norm,
        id="channels_first",
    ),
    ms(
        "GroupNorm",
        [t(2, 3, 5, 8, dtype="float16"), *SCALES],
        {"groups": 1, "activation": 1},
        dtypes=("float32", "float16"),
        oracle=group_norm,
        id="half",
    ),
    ms("SkipGroupNorm", [NHWC, *SCALES, t(2, 3, 5, 8)], {"groups": 4, "activation": 1}, outputs=2, grad=True,
       oracle=group_norm),
    ms("SkipGroupNorm", [NHWC, *SCALES, t(2, 1, 1, 8), t(8)], {"groups": 4, "activation": 0}, outputs=2,
       oracle=group_norm, id="flat"),
    ms("SkipGroupNorm", [NHWC, *SCALES, t(2, 8), t(8)], {"groups": 2, "activation": 0}, outputs=2,
       oracle=group_norm, id="matrix"),
    ms("SkipGroupNorm", [NCHW, *SCALES, t(2, 8), t(8)], {"groups": 2, "activation": 0, "channels_last": 0},
       outputs=2, oracle=group_norm, id="channels_first"),
    ms("NhwcConv", [t(2, 6, 5, 4), t(6, 3, 3, 4), t(6)], {"pads": [1, 0, 1, 2]}, grad=True, oracle=nhwc_conv),
    ms("NhwcConv", [t(1, 6, 5, 4), t(6, 3, 3, 2)], {"strides": [2, 1], "group": 2}, oracle=nhwc_conv,
       id="groups"),
    ms("NhwcMaxPool", [t(2, 6, 7, 3, low=-128, high=128)], {"kernel_shape": [2, 3]}, dtypes=("int8",)),
    ms("NhwcMaxPool", [t(2, 6, 7, 3, low=0, high=256)], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1],
       "strides": [2, 2], "ceil_mode": 1}, dtypes=("uint8",), id="ceil"),
    ms("NhwcMaxPool", [t(1, 8, 6, 7, 2, low=-128, high=128)], {"kernel_shape": [2, 3, 2]}, dtypes=("int8",),
       id="volume"),
    ms("NhwcMaxPool", [t(0, 6, 7, 3)], {"kernel_shape": [2, 3]}, dtypes=("int8",), id="empty"),
    ms("GridSample", [t(2, 3, 5, 4), t(2, 3, 6, 2, low=-1.2, high=1.2)], grad=True),
    ms("GridSample", [t(2, 3, 5, 4), t(2, 3, 6, 2, low=-1.2, high=1.2)],
       {"mode": "bicubic", "padding_mode": "border", "align_corners": 1}, id="bicubic"),
    ms("CropAndResize", [IMAGES, BOXES, OWNERS, size(3, 4)], {"extrapolation_value": -2.0}),
    ms("CropAndResize", [IMAGES, BOXES, OWNERS, size(4, 2)], {"mode": "nearest"}, id="nearest"),
    ms("CropAndResize", [IMAGES, BOXES, OWNERS, size(1, 1)], id="one"),
    ms("ConvTransposeWithDynamicPads", [t(2, 4, 5, 3), t(4, 3, 3, 3), const([1, 0, 1, 2], "int64"), t(3)],
       {"strides": [2, 2], "output_padding": [1, 1]}, grad=True),
    ms("MaxpoolWithMask", [t(2, 3, 6, 7), MASK], {"kernel_shape": [2, 3]}, grad=True),
    ms("MaxpoolWithMask", [t(2, 3, 6, 7), MASK], {"kernel_shape": [3, 3], "pads": [1, 0, 1, 2],
       "strides": [2, 1]}, id="pads"),
    ms("MaxpoolWithMask", [t(2, 3, 6, 7), MASKS], {"kernel_shape": [3, 3]}, oracle=masked_pool, id="masks"),
)  # fmt: skip
