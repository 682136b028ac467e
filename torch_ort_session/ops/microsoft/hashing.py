"""MurmurHash3, the 32 bit hash of com.microsoft.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MurmurHash3
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.common import strings
from torch_ort_session.ops.kernel import KernelContext, Strings, kernel

_LOW = 0xFFFFFFFF
_FIRST, _SECOND = 0xCC9E2D51, 0x1B873593


@kernel("MurmurHash3", domain="com.microsoft", since=(1,))
def murmur_hash_3(x: Tensor | Strings, *, positive: int = 1, seed: int = 0, ctx: KernelContext) -> Tensor:
    """A hash of the bytes of each element, MurmurHash3_x86_32.

    Args:
        x: 32 or 64 bit numbers, or strings, which are hashed in UTF-8.
        positive: 1 for a result in uint32, 0 for int32.
        seed: Where the hash starts, 32 bits.
        ctx: Tells the device of the result where strings came.

    Raises:
        TypeError: Elements of another width.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MurmurHash3
    """
    shape = x.shape
    if isinstance(x, Tensor):
        if x.dtype.itemsize not in (4, 8):
            raise TypeError(f"MurmurHash3 takes 32 or 64 bit numbers or strings, not {x.dtype}.")
        words = x.detach().reshape(-1, 1).contiguous().view(torch.int32).to(torch.int64)
        value = torch.full(words.shape[:1], seed & _LOW, dtype=torch.int64, device=x.device)
        for word in words.unbind(1):
            value = _blended(value, word & _LOW)
        value = _finished(value ^ x.dtype.itemsize)
    else:
        value = _hash_of_texts(x, seed & _LOW).to(ctx.device)
    return value.reshape(shape).to(torch.uint32 if positive else torch.int32)


def _hash_of_texts(texts: Strings, seed: int) -> Tensor:
    """The hash of each string, word by word of all of them."""
    coded = [text.encode() for text in strings.flat(texts)]
    sizes = torch.tensor([len(item) for item in coded], dtype=torch.int64)
    width = -(-max(map(len, coded), default=0) // 4) * 4
    packed = b"".join(item.ljust(width, b"\0") for item in coded)
    words = torch.tensor(list(packed), dtype=torch.uint8).view(torch.int32).to(torch.int64) & _LOW
    words = words.reshape(len(coded), width // 4)
    value = torch.full((len(coded),), seed, dtype=torch.int64)
    for place, word in enumerate(words.unbind(1)):
        left = sizes - 4 * place
        # The last bytes of a string that fill no word are scrambled, but not blended.
        value = torch.where(
            left >= 4, _blended(value, word), torch.where(left > 0, value ^ _scrambled(word), value)
        )
    return _finished(value ^ sizes)


def _turned(value: Tensor, count: int) -> Tensor:
    return ((value << count) | (value >> (32 - count))) & _LOW


def _scrambled(word: Tensor) -> Tensor:
    # Products that exceed 64 bits wrap, which leaves their low half right.
    return (_turned((word * _FIRST) & _LOW, 15) * _SECOND) & _LOW


def _blended(value: Tensor, word: Tensor) -> Tensor:
    return (_turned(value ^ _scrambled(word), 13) * 5 + 0xE6546B64) & _LOW


def _finished(value: Tensor) -> Tensor:
    value = ((value ^ (value >> 16)) * 0x85EBCA6B) & _LOW
    value = ((value ^ (value >> 13)) * 0xC2B2AE35) & _LOW
    return value ^ (value >> 16)
