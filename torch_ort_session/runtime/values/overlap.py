"""Whether tensors share bytes, decided exactly where that can be had at a bounded price."""

from __future__ import annotations

import torch

_EFFORT = 10_000
"""Partial solutions that a search looks at before it gives up and says that the tensors overlap."""


def overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether some byte belongs to elements of both tensors.

    Interleaved slices of one tensor do not overlap, and are told from those that do.

    Args:
        a: A strided tensor.
        b: Another one.

    Returns:
        True also where an answer would take too long.
    """
    if a.device != b.device or not a.numel() or not b.numel():
        return False
    distance = b.data_ptr() - a.data_ptr()
    # An element of `a` at i and one of `b` at j share a byte when the sum of i * stride of `a`, less that of
    # j * stride of `b`, is the distance; a byte within its element is one more dim.
    terms: dict[int, tuple[int, int]] = {}
    for step, low, high in (*_terms(a, 1), *_terms(b, -1)):
        least, most = terms.get(step, (0, 0))
        terms[step] = (least + low, most + high)
    return _reachable(distance, [(step, *terms[step]) for step in sorted(terms, reverse=True)])


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether two elements of a tensor may share bytes, as in an expanded one; such cannot be written."""
    inner = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride < inner:
            return tensor.numel() > 0
        inner += stride * (size - 1)
    return False


def _terms(tensor: torch.Tensor, sign: int) -> list[tuple[int, int, int]]:
    """Step in bytes with the lowest and the highest factor it can have, one a dim."""
    width = tensor.element_size()
    dims = [*zip(tensor.stride(), tensor.shape, strict=True)]
    steps = [(stride * width, size - 1) for stride, size in dims if size > 1 and stride]
    steps.append((1, width - 1))
    return [(step, 0, most) if sign > 0 else (step, -most, 0) for step, most in steps]


def _reachable(distance: int, terms: list[tuple[int, int, int]]) -> bool:
    """Whether factors exist whose sum of products is the distance."""
    reach = [(0, 0)]
    for step, low, high in reversed(terms):
        least, most = reach[-1]
        reach.append((least + step * low, most + step * high))
    reach.reverse()
    open_ = [(distance, 0)]
    for _ in range(_EFFORT):
        if not open_:
            return False
        rest, place = open_.pop()
        least, most = reach[place]
        if not least <= rest <= most:
            continue
        if place == len(terms):
            return True
        step, low, high = terms[place]
        least, most = reach[place + 1]
        # The other dims cover [least, most], which leaves few factors for this one.
        first = max(low, -((most - rest) // step))
        last = min(high, (rest - least) // step)
        factors = range(first, min(last, first + _EFFORT) + 1)
        open_ += [(rest - step * factor, place + 1) for factor in factors]
    return True
