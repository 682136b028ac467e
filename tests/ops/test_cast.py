"""Casts over whole ranges of bit patterns, and what users read about bad targets."""

from __future__ import annotations

from types import MappingProxyType

import ml_dtypes
import numpy as np
import pytest
import torch
from expecttest import assert_expected_inline

from torch_ort_session.ir.graph import Node
from torch_ort_session.ir.types import ElementType
from torch_ort_session.ops.common.casting import bits_of, convert, from_bits
from torch_ort_session.ops.kernel import KernelContext
from torch_ort_session.ops.onnx.cast import bit_cast, cast, cast_v1

EIGHT_BITS = (
    (ElementType.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn),
    (ElementType.FLOAT8E4M3FNUZ, ml_dtypes.float8_e4m3fnuz),
    (ElementType.FLOAT8E5M2, ml_dtypes.float8_e5m2),
    (ElementType.FLOAT8E5M2FNUZ, ml_dtypes.float8_e5m2fnuz),
)
HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)


def context(**attributes: int | str) -> KernelContext:
    node = Node("n", "Cast", "", 25, ("x",), ("y",), MappingProxyType(attributes))
    return KernelContext(node=node, device=torch.device("cpu"), wanted=(True,))


def same(got: torch.Tensor, want: np.ndarray) -> bool:
    ours, theirs = got.to(torch.float64).numpy(), want.astype(np.float64)
    equal = (ours == theirs) & (np.signbit(ours) == np.signbit(theirs))
    return bool(np.all(equal | (np.isnan(ours) & np.isnan(theirs))))


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize(("element", "kind"), EIGHT_BITS)
@pytest.mark.parametrize("source", [np.float16, np.float32, np.float64])
def test_every_half_becomes_the_nearest_8_bit_float(
    element: ElementType, kind: type, saturate: bool, source: type
) -> None:
    with np.errstate(invalid="ignore"):
        data = HALVES.astype(source)
        held = data.astype(np.float32)
        if saturate:
            ends = ml_dtypes.finfo(kind)
            held = np.clip(held, float(ends.min), float(ends.max))
        assert same(convert(torch.from_numpy(data), element, saturate), held.astype(kind))


@pytest.mark.parametrize(("element", "kind"), EIGHT_BITS)
def test_float64_is_rounded_once(element: ElementType, kind: type) -> None:
    values = np.unique(np.arange(256, dtype=np.uint8).view(kind).astype(np.float64))
    # np.unique keeps either zero; a conversion rounds to the positive one.
    values = np.abs(values[np.isfinite(values) & (values >= 0)])
    low, high = values[:-1], values[1:]
    middle = (low + high) / 2
    # Nearer to one neighbour than float32 can say.
    assert same(convert(torch.from_numpy(middle * (1 + 1e-14)), element), high.astype(kind))
    assert same(convert(torch.from_numpy(middle * (1 - 1e-14)), element), low.astype(kind))


def test_every_half_becomes_the_nearest_float4() -> None:
    data = HALVES[np.isfinite(HALVES)].astype(np.float32)
    got = convert(torch.from_numpy(data), ElementType.FLOAT4E2M1)
    assert same(got, data.astype(ml_dtypes.float4_e2m1fn))


@pytest.mark.parametrize(
    ("element", "kind"), [*EIGHT_BITS, (ElementType.FLOAT8E8M0, ml_dtypes.float8_e8m0fnu)]
)
def test_every_8_bit_float_becomes_a_wider_one(element: ElementType, kind: type) -> None:
    codes = np.arange(256, dtype=np.uint8)
    dtype = element.torch_dtype
    assert dtype is not None
    narrow = torch.from_numpy(codes).view(dtype)
    for target in (torch.float32, torch.float64):
        assert same(narrow.to(target), codes.view(kind).astype(np.float64))
    assert convert(narrow, element) is narrow or element is ElementType.FLOAT8E8M0


@pytest.mark.parametrize("element", [ElementType.INT4, ElementType.UINT4, ElementType.FLOAT4E2M1])
def test_four_bits_and_back(element: ElementType) -> None:
    codes = torch.arange(16, dtype=torch.uint8)
    assert bits_of(from_bits(codes, element), element).tolist() == codes.tolist()


def test_powers_of_two_at_the_ends_of_their_range() -> None:
    x = torch.tensor(
        [0.0, 1e-45, 2.0**-127, 1.01 * 2.0**-127, 2.0**127, 1.2 * 2.0**127, float("inf"), float("nan")]
    )
    to = ElementType.FLOAT8E8M0

    def codes(saturate: bool, mode: str) -> list[int]:
        return convert(x, to, saturate, mode).view(torch.uint8).tolist()

    assert codes(True, "up") == [0, 0, 0, 1, 254, 254, 254, 255]
    assert codes(True, "down") == [0, 0, 0, 0, 254, 254, 254, 255]
    assert codes(True, "nearest") == [0, 0, 0, 0, 254, 254, 254, 255]
    assert codes(False, "nearest") == [255, 255, 0, 0, 254, 254, 255, 255]
    assert codes(False, "up") == [255, 255, 0, 1, 254, 255, 255, 255]


def test_a_cast_to_its_own_type_copies_nothing() -> None:
    x = torch.zeros(3)
    assert cast(x, to=1, ctx=context(to=1)) is x


def test_what_cannot_be_cast_is_said() -> None:
    with pytest.raises(ValueError) as code:
        cast(torch.zeros(1), to=99, ctx=context(to=99))
    assert_expected_inline(
        str(code.value), """The attribute to is 99, which is the code of no element type known here."""
    )
    with pytest.raises(ValueError) as name:
        cast_v1(torch.zeros(1), to="HALF", ctx=context(to="HALF"))
    assert_expected_inline(str(name.value), """The attribute to names no element type of ONNX: 'HALF'.""")
    with pytest.raises(ValueError) as mode:
        cast(torch.zeros(1), to=24, round_mode="odd", ctx=context(to=24))
    assert_expected_inline(str(mode.value), """round_mode is "up", "down" or "nearest", not 'odd'.""")
    with pytest.raises(ValueError) as width:
        bit_cast(torch.zeros(1), to=11, ctx=context(to=11))
    assert_expected_inline(
        str(width.value),
        """BitCast needs types of one width, not float32 with 32 bits and float64 with 64.""",
    )
    with pytest.raises(ValueError, match="could not convert string to float: 'Hello'"):
        cast(np.array(["Hello"], dtype=object), to=1, ctx=context(to=1))
