"""Rewrites: an op without a form that writes into a tensor is recorded as calls that do, to the bit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from finishing import finish
from tapelab import needs_extension, tape_recorder

Body = Callable[[torch.Tensor], torch.Tensor]
X = torch.tensor([[-7.5, 3.25, float("nan"), 0.0], [2.0, -0.0, 11.0, float("inf")]])
BYTES = (torch.arange(64, dtype=torch.uint8) * 37).view(8, 8)
IDS = torch.arange(-6, 6).view(3, 4)

BODIES: dict[str, tuple[torch.Tensor, Body]] = {
    "xor with a number": (BYTES, lambda x: x ^ 128),
    "xor with a number, wider": (BYTES.to(torch.int32), lambda x: torch.bitwise_xor(x, -3)),
    "and with a number": (IDS, lambda x: x & 6),
    "or with a number": (IDS, lambda x: x | 1),
    "bools": (IDS > 0, lambda x: x ^ True),
    "shift left": (IDS, lambda x: x << 3),
    "shift right": (IDS, lambda x: x >> 1),
    "shift by a tensor": (IDS, lambda x: x >> torch.tensor([0, 1, 2, 3])),
    "remainder": (IDS, lambda x: x % -4),
    "remainder of floats": (X, lambda x: torch.remainder(x, 2.5)),
    "remainder that is a float": (IDS, lambda x: x % 2.5),
    "number less a tensor": (X, lambda x: 1 - x),
    "number less a multiple": (X, lambda x: torch.rsub(x, 2, alpha=3)),
    "integer less a tensor": (IDS, lambda x: 3 - x),
    "float less integers": (IDS, lambda x: 0.5 - x),
    "not a number": (X, torch.isnan),
    "ones": (X, lambda x: torch.ones_like(x, dtype=torch.int64)),
    "zeros of another form": (X, lambda x: x.new_zeros(2, 3)),
    "full of another dtype": (X, lambda x: x.new_full((3,), 2.75, dtype=torch.float64)),
    "a scalar": (X, lambda x: torch.scalar_tensor(2.5, dtype=torch.bfloat16)),
    "counting": (X, lambda x: torch.arange(7)),
    "counting in floats": (X, lambda x: torch.arange(7.0)),
    "counting backwards": (X, lambda x: torch.arange(9, 1, -2, dtype=torch.int32)),
    "padded": (X, lambda x: torch.constant_pad_nd(x, [1, 2, 0, 3], -1.5)),
    "padded with a default": (BYTES, lambda x: torch.constant_pad_nd(x, [0, 1])),
    "cut": (X, lambda x: torch.constant_pad_nd(x, [-1, -1])),
    "cut and padded": (X, lambda x: torch.constant_pad_nd(x, [-1, 2, 1, -1], 7)),
    "cut to nothing": (X, lambda x: torch.constant_pad_nd(x, [-2, -2], 7)),
    "padded, channels last": (
        torch.rand(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
        lambda x: torch.constant_pad_nd(x, [1, 1, 2, 0], 0.5),
    ),
    "repeated": (X, lambda x: x.repeat(3, 1, 2)),
    "repeated never": (X, lambda x: x.repeat(0, 2)),
    "repeated, turned": (X, lambda x: x.t().repeat(2, 2)),
    "put": (X, lambda x: torch.index_put(x, [torch.tensor([1, 0])], torch.tensor([5.0, 6.0, 7.0, 8.0]))),
    "put and added": (
        X,
        lambda x: torch.index_put(
            x, [torch.tensor([1, 1]), torch.tensor([0, 0])], torch.tensor([0.1, 0.2]), accumulate=True
        ),
    ),
}


@pytest.mark.parametrize("name", BODIES)
@needs_extension
def test_m13_a_rewritten_call_gives_the_bits_of_the_op_and_allocates_nothing(name: str) -> None:
    start, body = BODIES[name]
    x, results = start.clone(memory_format=torch.preserve_format), []
    # More than one reader, so that the result has a slot.
    recording = tape_recorder().record(lambda: results.append(body(x).clone().flatten()))
    stats = finish(recording, [*results, x])
    for turn in range(3):
        x.copy_(start.flip(0) if turn % 2 else start)
        expected = body(x)
        recording.replay()
        assert results[0].dtype == expected.dtype
        assert torch.equal(results[0].view(torch.uint8), expected.clone().flatten().view(torch.uint8))
    assert stats.functional == 0


@needs_extension
def test_m13_a_rewritten_pointwise_call_writes_over_an_argument_that_nobody_reads_afterwards() -> None:
    x, results = torch.arange(4096, dtype=torch.int32), []
    recording = tape_recorder().record(lambda: results.append((((x + 1) ^ 3) >> 1).cumsum(0)))
    assert finish(recording, [*results, x]).arena == x.nbytes
    recording.replay()
    assert torch.equal(results[0], (((x + 1) ^ 3) >> 1).cumsum(0))


@needs_extension
def test_m13_lazy_bits_are_not_written_away() -> None:
    x, results = torch.randn(4, dtype=torch.complex64), []
    recording = tape_recorder().record(lambda: results.append(torch.constant_pad_nd(x.conj(), [1, 1]) * 1))
    finish(recording, [*results, x])
    x.mul_(2j)
    recording.replay()
    assert torch.equal(results[0], torch.constant_pad_nd(x.conj(), [1, 1]))
