"""The CUDA kernel of activations, emulated, beside its twin on the CPU."""

from __future__ import annotations

import pytest
import torch
from hostcuda import launch, needs_compiler, poisoned

from torch_ort_session.ops import native
from torch_ort_session.ops.common.gates import Gate

pytestmark = [
    needs_compiler,
    pytest.mark.skipif(not native.status().usable, reason=f"native ops: {native.status().reason}"),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", list(Gate))
@pytest.mark.parametrize(("rows", "width"), [(1, 1), (3, 31), (2, 300), (5, 257)])
def test_both_devices_give_the_same(dtype: torch.dtype, kind: Gate, rows: int, width: int) -> None:
    native.load()
    torch.manual_seed(width)
    x, bias = 3 * torch.randn(rows, 2 * width), torch.randn(2 * width)
    x[0, 0] = torch.nan
    x, bias = x.to(dtype), bias.to(dtype)
    up = torch.randn(rows, width).to(dtype)
    step = torch.finfo(dtype).eps
    near = {"rtol": 2 * max(step, 5e-7), "atol": max(step, 1e-6), "equal_nan": True}
    op = torch.ops.torch_ort_session.activate.default
    name = f"activate_{str(dtype).removeprefix('torch.')}"

    def emulated(
        gate: torch.Tensor, *parts: torch.Tensor | None, rounded: bool, numbers: list[float]
    ) -> torch.Tensor:
        y = poisoned(rows, width, dtype=dtype)
        strides = [gate.shape[1], 0 if parts[0] is None else parts[0].shape[1]]
        sizes = torch.tensor([*strides, rows, width, int(kind), rounded])
        launch("activate", name, gate, *parts, y, sizes, torch.tensor(numbers))
        return y

    plain = [1.5, 0.0, 0.0]
    whole = x[:, :width].contiguous()
    got = emulated(whole, None, bias[:width].clone(), None, rounded=False, numbers=plain)
    wanted = op(whole, None, bias[:width].contiguous(), int(kind), False, *plain, False)
    torch.testing.assert_close(got, wanted, **near)
    for numbers in (plain, [1.5, 0.25, 0.75]):
        for rounded in (False, True):
            # The gate's rows lie further apart than they are wide.
            got = emulated(x, up, None, None, rounded=rounded, numbers=numbers)
            wanted = op(x[:, :width], up, None, int(kind), False, *numbers, rounded)
            torch.testing.assert_close(got, wanted, **near)
    if kind is Gate.SIGMOID:
        got = emulated(
            x,
            x[:, width:].contiguous(),
            bias[:width].clone(),
            bias[width:].clone(),
            rounded=False,
            numbers=plain,
        )
        torch.testing.assert_close(got, op(x, None, bias, int(kind), True, *plain, False), **near)
