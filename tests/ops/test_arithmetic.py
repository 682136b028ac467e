"""Arithmetic where a wrong instruction would end the process, and what users read about bad operands."""

from __future__ import annotations

import pytest
import torch
from expecttest import assert_expected_inline

from torch_ort_session.ir.graph import Node
from torch_ort_session.ops.kernel import KernelContext
from torch_ort_session.ops.onnx.arithmetic import div, mod, pow_
from torch_ort_session.ops.onnx.arithmetic_legacy import add_legacy, div_legacy
from torch_ort_session.ops.onnx.logic import bit_shift

SIGNED = [torch.int8, torch.int16, torch.int32, torch.int64]
CTX = KernelContext(Node("n", "Div", "", 14, ("a", "b"), ("y",)), torch.device("cpu"), (True,))
INTEGERS = [*SIGNED, torch.uint8, torch.uint16, torch.uint32, torch.uint64]


@pytest.mark.parametrize("dtype", SIGNED)
def test_the_least_integer_divided_by_minus_one_wraps(dtype: torch.dtype) -> None:
    least = torch.iinfo(dtype).min
    a = torch.tensor([least, least, least, 7, -7, least], dtype=dtype)
    b = torch.tensor([-1, 1, 2, -1, 2, least], dtype=dtype)
    assert div(a, b, ctx=CTX).tolist() == [least, least, least // 2, -7, -3, 1]
    assert div_legacy(a, b[:1], broadcast=1, ctx=CTX).tolist() == [least, least, least, -7, 7, least]
    assert mod(a, b, ctx=CTX).tolist() == [0, 0, 0, 0, 1, 0]
    assert mod(a, b, fmod=1, ctx=CTX).tolist() == [0, 0, 0, 0, -1, 0]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_an_integer_divided_by_zero_is_an_error(dtype: torch.dtype) -> None:
    one, zero = torch.ones(3, dtype=torch.int32).to(dtype), torch.zeros(3, dtype=torch.int32).to(dtype)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        div(one, zero, ctx=CTX)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        mod(one, zero, ctx=CTX)


def test_float_mod_takes_even_the_sign_of_a_zero_from_the_divisor() -> None:
    inf, nan = float("inf"), float("nan")
    a = torch.tensor([0.0, -0.0, -2.0, 2.0, inf, 3.0, 3.0, -3.0, nan, 5.0])
    b = torch.tensor([-1.0, 1.0, 1.0, -1.0, 2.0, 0.0, inf, inf, 1.0, nan])
    got = mod(a, b, ctx=CTX)
    assert torch.signbit(got[:4]).tolist() == [True, False, False, True]
    assert got[:4].tolist() == [0, 0, 0, 0]
    assert torch.isnan(got[4:6]).all()
    assert got[6:8].tolist() == [3.0, inf]
    assert torch.isnan(got[8:]).all()


def test_pow_keeps_the_dtype_of_its_base() -> None:
    for base in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.int64):
        for exponent in (torch.float16, torch.float32, torch.float64, *INTEGERS):
            result = pow_(torch.tensor([2, 3]).to(base), torch.tensor([2, 1]).to(exponent))
            assert result.dtype is base
            assert result.tolist() == [4, 3]


def test_operands_of_old_revisions_must_fit() -> None:
    with pytest.raises(ValueError) as unequal:
        add_legacy(torch.zeros(2, 3), torch.zeros(3))
    assert_expected_inline(
        str(unequal.value),
        """Shapes (2, 3) and (3,) differ, and the attribute broadcast is not 1; before opset 7 nothing is broadcast without it.""",  # noqa: E501
    )
    with pytest.raises(ValueError) as misplaced:
        add_legacy(torch.zeros(2, 3, 4), torch.zeros(3), axis=0, broadcast=1)
    assert_expected_inline(
        str(misplaced.value), """The second operand's shape (3,) does not fit into (2, 3, 4) at axis 0."""
    )
    with pytest.raises(ValueError, match="at axis 2"):
        add_legacy(torch.zeros(2, 3), torch.zeros(2, 3, 1), axis=2, broadcast=1)


@pytest.mark.parametrize("base", [torch.int32, torch.int64])
@pytest.mark.parametrize("exponent", [*SIGNED, "number"])
def test_a_negative_power_of_an_integer_rounds_towards_zero(
    base: torch.dtype, exponent: torch.dtype | str
) -> None:
    x = torch.tensor([0, 1, -1, 2, -2, torch.iinfo(base).min, torch.iinfo(base).max], dtype=base)
    for power in (-1, -2, -127, -128):
        y = power if exponent == "number" else torch.tensor(power, dtype=exponent)
        assert pow_(x, y).tolist() == [0, 1, 1 if power % 2 == 0 else -1, 0, 0, 0, 0]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_a_shift_by_the_width_or_more_leaves_the_sign_alone(dtype: torch.dtype) -> None:
    info = torch.iinfo(dtype)
    numbers, width = [info.min, info.max, 0, 1, 3], info.bits
    counts = [c for c in (0, 1, width - 1, width, width + 1, info.max) if c <= info.max]
    x = torch.tensor([n for n in numbers for _ in counts], dtype=dtype)
    y = torch.tensor(counts * len(numbers), dtype=dtype)
    right = [n >> min(c, 64) for n in numbers for c in counts]
    left = [(n << min(c, width)) % 2**width for n in numbers for c in counts]
    assert bit_shift(x, y, direction="RIGHT").tolist() == right
    assert [n % 2**width for n in bit_shift(x, y, direction="LEFT").tolist()] == left


def test_a_shift_has_two_directions() -> None:
    one = torch.ones(1, dtype=torch.int32)
    with pytest.raises(ValueError) as error:
        bit_shift(one, one, direction="UP")
    assert_expected_inline(str(error.value), """BitShift has the directions LEFT and RIGHT, not 'UP'.""")
