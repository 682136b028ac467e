"""The CUDA kernel of RotaryEmbedding, emulated, beside its twin on the CPU."""

from __future__ import annotations

import pytest
import torch
from hostcuda import launch, needs_compiler, poisoned

from torch_ort_session.ops import native
from torch_ort_session.runtime.validation import word as layout

pytestmark = [
    needs_compiler,
    pytest.mark.skipif(not native.status().usable, reason=f"native ops: {native.status().reason}"),
]


def turned(
    x: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor | None,
    heads: int,
    interleaved: bool,
    word: torch.Tensor | None = None,
) -> torch.Tensor:
    """By the emulated kernel, for node 3; x is [B, H, L, D], or [B, L, H * D]."""
    four = x if x.dim() == 4 else x.unflatten(2, (heads, -1)).transpose(1, 2)
    y = poisoned(*x.shape, dtype=x.dtype)
    to = y if x.dim() == 4 else y.unflatten(2, (heads, -1)).transpose(1, 2)
    strides = [t.stride(axis) for t in (four, to) for axis in (0, 2, 1)]
    batch, heads, length, size = four.shape
    counted = positions is not None and positions.dim() == 1
    sizes = [batch * length, length, heads, size, cos.shape[-1], cos.shape[0], counted, interleaved]
    name = f"rotary_{str(x.dtype).removeprefix('torch.')}"
    given = x, cos, sin, positions, y, torch.tensor(strides), torch.tensor(sizes, dtype=torch.int64)
    launch("rotary", name, *given, 3, word)
    return y


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize(
    ("batch", "heads", "length", "size", "half"),
    [(1, 1, 1, 2, 1), (2, 3, 5, 8, 4), (1, 4, 1, 128, 64), (2, 2, 3, 37, 9), (1, 2, 2, 6, 0)],
)
def test_both_devices_give_the_same(
    dtype: torch.dtype,
    interleaved: bool,
    flat: bool,
    batch: int,
    heads: int,
    length: int,
    size: int,
    half: int,
) -> None:
    native.load()
    torch.manual_seed(size)
    shape = (batch, length, heads * size) if flat else (batch, heads, length, size)
    x, angles = torch.randn(shape).to(dtype), torch.randn(2, 11, half).to(dtype)
    op = torch.ops.torch_ort_session.rotary.default
    own = torch.randn(2, batch, length, half).to(dtype)
    for (cos, sin), positions in (
        (angles, torch.randint(-13, 13, (batch, length))),
        (angles, torch.tensor([8])),
        (own, None),
    ):
        ours, theirs = (torch.zeros(layout.SIZE, dtype=torch.int32) for _ in range(2))
        got = turned(x, cos, sin, positions, heads, interleaved, ours)
        wanted = op(x, cos, sin, positions, heads, interleaved, 3, theirs)
        step = torch.finfo(dtype).eps
        torch.testing.assert_close(got, wanted, rtol=step, atol=2 * step)
        assert torch.equal(ours, theirs)


def test_m11_of_many_tokens_the_first_bad_one_is_told() -> None:
    x, angles = torch.randn(3, 700, 4), torch.randn(2, 5, 2)
    positions = torch.arange(2100).reshape(3, 700) % 5
    positions[1, 300], positions[2, 5], positions[2, 699] = 77, -6, 5
    ours, theirs = (torch.zeros(layout.SIZE, dtype=torch.int32) for _ in range(2))
    safe = layout.check_range(positions, 0, 4, layout.Flag.INDEX, 3, theirs)
    got = turned(x, *angles, positions, 1, True, ours)
    assert torch.equal(ours, theirs)
    torch.testing.assert_close(got, turned(x, *angles, safe, 1, True))
    assert torch.equal(turned(x, *angles, positions, 1, True), got)
