"""Numbers from strings and strings from numbers.

Source: https://onnx.ai/onnx/operators/onnx__Cast.html
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from torch_ort_session.ir.types import ElementType
from torch_ort_session.ops.common.casting import convert
from torch_ort_session.ops.kernel import Strings

_WORDS = {"true": "1", "false": "0"}
_INTEGERS = frozenset(
    {
        ElementType.INT8,
        ElementType.INT16,
        ElementType.INT32,
        ElementType.INT64,
        ElementType.UINT8,
        ElementType.UINT16,
        ElementType.UINT32,
        ElementType.INT4,
        ElementType.UINT4,
        ElementType.INT2,
        ElementType.UINT2,
    }
)


def parse(
    texts: Strings, to: ElementType, device: torch.device, saturate: bool = True, round_mode: str = "up"
) -> Tensor:
    """Numbers as their texts say: plain and scientific notation, ``INF`` and ``NaN`` in any case.

    Args:
        texts: Strings; for bool also ``true`` and ``false``.
        to: The element type wanted; an integer of a text with a fraction is rounded towards zero.
        device: Where the result goes.
        saturate: As in ``casting.convert``.
        round_mode: As in ``casting.convert``.

    Returns:
        A tensor of the shape of ``texts`` in the carrier dtype of ``to``.

    Raises:
        ValueError: A text that is no number.
    """
    if to is ElementType.BOOL:
        words = [_WORDS.get(str(text).strip().lower(), text) for text in texts.reshape(-1)]
        return _floats(words, texts.shape).ne(0).to(device)
    if to in _INTEGERS or to is ElementType.UINT64:
        whole = _whole_numbers(texts, unsigned=to is ElementType.UINT64)
        if whole is not None:
            return convert(whole.to(device), to)
    return convert(_floats(list(texts.reshape(-1)), texts.shape).to(device), to, saturate, round_mode)


def _floats(words: list[str], shape: tuple[int, ...]) -> Tensor:
    return torch.tensor([float(word) for word in words], dtype=torch.float64).reshape(shape)


def _whole_numbers(texts: Strings, *, unsigned: bool) -> Tensor | None:
    """Exact integers, or None where a text is not a plain integer of 64 bits."""
    try:
        return torch.from_numpy(texts.astype(np.dtype("uint64" if unsigned else "int64")))
    except (ValueError, OverflowError):
        return None


def render(x: Tensor) -> Strings:
    """The shortest decimal text of each number that reads back as the same; it reads the data on the host.

    Args:
        x: Numbers or bools; bfloat16 and narrower floats are written as float32.

    Returns:
        Strings of the same shape.
    """
    if x.dtype.is_floating_point and (x.dtype is torch.bfloat16 or x.dtype.itemsize == 1):
        x = x.to(torch.float32)
    return x.detach().cpu().numpy().astype(np.dtype("U")).astype(np.object_)
