"""Results without data of the ops on caches of keys and values: for torch.compile and torch.export.

The ops are in ``gqa_decode/`` and ``cache_appended/`` of ``csrc/attention``; :mod:`.native` hands them out.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def describe(known: Callable[[str], bool]) -> None:
    """Register shapes, once the extension is loaded.

    Args:
        known: Whether it has an op of a name.
    """
    for shape in (_gqa_decode, _cache_append_, _cache_appended):
        name = shape.__name__.removeprefix("_")
        if known(name):
            torch.library.register_fake(f"torch_ort_session::{name}", shape)


def _gqa_decode(
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    past_key: Tensor,
    past_value: Tensor,
    last: Tensor,
    total: int,
    cos: Tensor | None,
    sin: Tensor | None,
    position: Tensor | None,
    bias: Tensor | None,
    sink: Tensor | None,
    heads: int,
    groups: int,
    scale: float,
    window: int,
    softcap: float,
    interleaved: bool,
    smooth: bool,
    node: int,
    word: Tensor | None,
    instructions: int = -1,
    *,
    query_norm: Tensor | None = None,
    key_norm: Tensor | None = None,
    query_epsilon: float = 0.0,
    key_epsilon: float = 0.0,
    counts: Tensor | None = None,
    rolling: bool = False,
    key_scale: Tensor | None = None,
    value_scale: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    batch, length, width = query.shape[0], query.shape[1], past_key.shape[3]
    fresh = (batch, groups, length, width)
    # Two numbers of 4 bits a byte.
    y = query.new_empty((batch, length, heads * width * (2 if past_key.dtype is torch.uint8 else 1)))
    places = (batch, 3) if rolling or counts is not None else (batch,)
    start = query.new_empty(places, dtype=torch.int64)
    return y, past_key.new_empty(fresh), past_key.new_empty(fresh), start


def _cache_append_(
    caches: list[Tensor], fresh: list[Tensor], starts: list[Tensor], word: Tensor | None
) -> None:
    return None


def _cache_appended(past: Tensor, fresh: Tensor, start: Tensor, rows: int) -> Tensor:
    shape = list(past.shape)
    shape[2] = torch.sym_max(shape[2], rows)  # type: ignore[no-untyped-call]
    return past.new_empty(shape)
