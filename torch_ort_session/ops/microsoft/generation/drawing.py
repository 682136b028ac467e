"""Tokens drawn by their scores, with random numbers that follow from a seed and a count.

Source: J. Salmon, M. Moraes, R. Dror, D. Shaw: Parallel random numbers: as easy as 1, 2, 3 (2011).
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops import native

_DTYPES = frozenset((torch.float32, torch.float16, torch.bfloat16))
_HALF = 0xFFFFFFFF
_UNITS = 2.0**31
_FLOAT = torch.finfo(torch.float32)


def drawn_tokens(
    scores: Tensor,
    state: Tensor,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    keep: int = 1,
    closed: bool = False,
) -> Tensor:
    """A token for each row, by the compiled op, or by plain ops that draw the same.

    Args:
        scores: float32, float16 or bfloat16 [R, V].
        state: int64 [2]: the seed, and the number of the draw, which grows by one.
        temperature: What scores are divided by, above 0. One that float32 holds only as 0 or as infinite
            counts as the least or the greatest number that it holds: the greatest score alone has a weight,
            or all that are finite have the same.
        top_k: How many of the most probable tokens may be drawn; 0 for all.
        top_p: Those may be drawn before which the more probable ones have less than this probability.
        keep: How many may be drawn at least, whatever ``top_p`` says.
        closed: Whether those before which they have just ``top_p`` may be too. Then the first of equals in
            the vocabulary counts as more probable, else the last.

    Returns:
        int64 [R], -1 where a score is no number or infinitely great, and where none is finite.

    Raises:
        ValueError: A temperature that is not above 0.
    """
    op = native.device_op("sample_token", scores, state) if scores.dtype in _DTYPES else None
    if op is not None:
        token: Tensor = op(scores, state, temperature, top_k, top_p, keep, closed)
        return token
    return plainly_drawn(scores, state, temperature, top_k, top_p, keep, closed)


def plainly_drawn(
    scores: Tensor, state: Tensor, temperature: float, top_k: int, top_p: float, keep: int, closed: bool
) -> Tensor:
    """The same by plain ops: see :func:`drawn_tokens`."""
    if not scores.shape[0]:
        return state.new_empty(0)
    if not temperature > 0:
        raise ValueError(f"drawn_tokens: the temperature is {temperature}, not above 0")
    temperature = min(max(temperature, _FLOAT.tiny), _FLOAT.max)
    scores = scores.to(torch.float32)
    most = scores.amax(1, keepdim=True)
    # A product in float32, as in the compiled op; what is no number weighs nothing.
    shares = torch.exp((scores - most) / torch.full_like(most, temperature)) * _UNITS
    good = most.isfinite()
    weights = torch.where(good, shares, 0.0).to(torch.int64)
    if closed:
        ordered, order = weights.sort(dim=1, descending=True, stable=True)
    else:
        ordered, order = weights.flip(1).sort(dim=1, descending=True, stable=True)
        order = weights.shape[1] - 1 - order
    before = ordered.cumsum(1) - ordered
    bound = weights.sum(1, keepdim=True).to(torch.float64) * top_p
    rank = torch.arange(weights.shape[1], device=weights.device)
    stays = ((before <= bound) if closed else (before < bound)) | (rank < keep)
    if top_k:
        stays = stays & (rank < top_k)
    kept = torch.zeros_like(weights).scatter(1, order, ordered * stays).cumsum(1)
    total = kept[:, -1:]
    place = (uniforms(state, weights.shape[0]).unsqueeze(1) * total.to(torch.float64)).to(torch.int64)
    token = torch.searchsorted(kept, torch.minimum(place, total - 1), right=True)
    state[1] += 1
    return torch.where(good, token, -1).squeeze(1)


def uniforms(state: Tensor, rows: int) -> Tensor:
    """The random numbers of a draw.

    Args:
        state: int64 [2]: the seed, and the number of the draw.
        rows: R.

    Returns:
        float64 [R] in [0, 1), multiples of 2**-53.
    """
    row = torch.arange(rows, device=state.device)
    seed, turn = state[0].expand(rows), state[1].expand(rows)
    counter = [turn & _HALF, turn >> 32 & _HALF, row & _HALF, row >> 32 & _HALF]
    first, second, _, _ = philox(counter, seed & _HALF, seed >> 32 & _HALF)
    return ((first << 21) ^ (second >> 11)).to(torch.float64) * 2.0**-53


def philox(counter: list[Tensor], low: Tensor, high: Tensor) -> list[Tensor]:
    """Philox 4x32 of 10 rounds.

    Args:
        counter: Four int64 tensors of one shape, with 32 bits each.
        low: The first 32 bits of the key.
        high: The other ones.

    Returns:
        Four tensors like those of the counter.
    """
    a, b, c, d = counter
    for _ in range(10):
        # Products of 64 bits wrap to what has the same bits.
        one, three = a * 0xD2511F53, c * 0xCD9E8D57
        upper_one, upper_three = one >> 32 & _HALF, three >> 32 & _HALF
        a, b, c, d = upper_three ^ b ^ low, three & _HALF, upper_one ^ d ^ high, one & _HALF
        low, high = low + 0x9E3779B9 & _HALF, high + 0xBB67AE85 & _HALF
    return [a, b, c, d]
