"""The CUDA kernel of SkipSimplifiedLayerNormalization, emulated, beside what torch gives in float64."""

from __future__ import annotations

import pytest
import torch
from axes import crossed
from hostcuda import launch, needs_compiler, poisoned

from torch_ort_session.ops import native

pytestmark = needs_compiler


@pytest.mark.parametrize(
    ("dtype", "rows", "width", "parts"),
    crossed(
        [torch.float32, torch.float16, torch.bfloat16],
        [(4, 65), (1, 1), (3, 31), (2, 64), (2, 1100), (5, 257)],
        ["skip and bias", "skip", "bias", ""],
    ),
)
def test_it_normalizes_the_sum(dtype: torch.dtype, rows: int, width: int, parts: str) -> None:
    generator = torch.Generator().manual_seed(rows * width)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    x, gamma = drawn(rows, width), drawn(width)
    skip = drawn(rows, width) if "skip" in parts else None
    bias = drawn(width) if "bias" in parts else None
    total, y, inverse = poisoned(rows, width, dtype=dtype), poisoned(rows, width, dtype=dtype), poisoned(rows)
    name = f"skip_rms_norm_{str(dtype).removeprefix('torch.')}"
    launch("skip_rms_norm", name, x, skip, bias, gamma, total, y, inverse, rows, width, 1e-5)
    plain = x if skip is None else x + skip
    plain = plain if bias is None else plain + bias
    if parts:
        assert torch.equal(total, plain)
    exact = plain.to(torch.float64)
    root = torch.rsqrt(exact.square().mean(1, keepdim=True) + 1e-5)
    step = torch.finfo(dtype).eps
    torch.testing.assert_close(inverse, root.squeeze(1).to(torch.float32), rtol=1e-5, atol=0)
    torch.testing.assert_close(
        y.to(torch.float64), exact * root * gamma.to(torch.float64), rtol=max(step, 1e-5), atol=step * 1e-3
    )


def test_without_a_place_for_the_inverse_nothing_is_written() -> None:
    x, gamma = torch.ones(2, 40), torch.full((40,), 2.0)
    total, y = poisoned(2, 40), poisoned(2, 40)
    launch("skip_rms_norm", "skip_rms_norm_float32", x, x, None, gamma, total, y, None, 2, 40, 0.0)
    assert torch.equal(total, x + x) and torch.allclose(y, torch.full((2, 40), 2.0))


@pytest.mark.parametrize("parts", ["skip", "bias", ""])
def test_a_sum_that_nobody_wants_changes_nothing(parts: str) -> None:
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(3, 1100, generator=generator).to(torch.float16)
    row = torch.randn(1100, generator=generator).to(torch.float16)
    skip, bias = (x.flip(0) if parts == "skip" else None), (row if parts == "bias" else None)
    results = []
    for total in (poisoned(3, 1100, dtype=torch.float16), None):
        y = poisoned(3, 1100, dtype=torch.float16)
        given = (x, skip, bias, row, total, y, None, 3, 1100, 1e-5)
        launch("skip_rms_norm", "skip_rms_norm_float16", *given)
        results.append(y)
    assert torch.equal(*results) and results[0].isfinite().all()


@pytest.mark.skipif(not native.status().usable, reason=f"native ops: {native.status().reason}")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_both_devices_give_the_same(dtype: torch.dtype) -> None:
    native.load()
    torch.manual_seed(0)
    x, skip, bias, gamma = (torch.randn(s).to(dtype) for s in ((3, 300), (3, 300), (300,), (300,)))
    total, y, inverse = poisoned(3, 300, dtype=dtype), poisoned(3, 300, dtype=dtype), poisoned(3)
    name = f"skip_rms_norm_{str(dtype).removeprefix('torch.')}"
    launch("skip_rms_norm", name, x, skip, bias, gamma, total, y, inverse, 3, 300, 1e-5)
    op = torch.ops.torch_ort_session.skip_rms_norm.default
    of_cpu = op(x, skip, bias, gamma, 1e-5, True, True)
    assert torch.equal(total, of_cpu[1])
    torch.testing.assert_close(inverse, of_cpu[2].squeeze(1), rtol=1e-6, atol=0)
    torch.testing.assert_close(y, of_cpu[0], rtol=max(torch.finfo(dtype).eps * 2, 1e-6), atol=0)


def test_nan_stays_in_its_row() -> None:
    x = torch.ones(3, 70)
    x[1, 69] = torch.nan
    total, y = poisoned(3, 70), poisoned(3, 70)
    gamma = torch.ones(70)
    launch("skip_rms_norm", "skip_rms_norm_float32", x, None, None, gamma, total, y, None, 3, 70, 0.0)
    assert y[1].isnan().all() and y[[0, 2]].isfinite().all()
