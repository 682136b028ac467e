"""Caches whose owner puts the new rows into them: a node then gives the rows in place of whole caches.

Only a binding asks for it, of a node whose caches are its states: see ``runtime/bindings/shared_caches.py``.
It names an output that no schema has, behind all others, which takes where the rows of each sample belong.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from torch_ort_session.ir.graph import Node
from torch_ort_session.ops import native

_START = " start"
_PAST, _PRESENT, _PLACE = (3, 4), (1, 2), 4
"""Places among the inputs and outputs of GroupQueryAttention."""


def caches_of(node: Node) -> tuple[tuple[str, str], ...]:
    """Past and present of keys and of values, where a node can give the rows in place of the caches."""
    if node.op != "GroupQueryAttention" or node.domain != "com.microsoft":
        return ()
    if len(node.outputs) < 3:
        return ()
    pairs = tuple((node.inputs[p], node.outputs[q]) for p, q in zip(_PAST, _PRESENT, strict=True))
    return pairs if all(past and present for past, present in pairs) else ()


def giving_rows(node: Node) -> Node:
    """The same node, which gives rows; its last output says where they belong."""
    outputs = (*node.outputs, "", "")[:_PLACE]
    return replace(node, outputs=(*outputs, node.outputs[_PRESENT[0]] + _START))


def gives_rows(node: Node) -> bool:
    """Whether a node is one that :func:`giving_rows` made."""
    return len(node.outputs) > _PLACE and node.outputs[_PLACE] == node.outputs[_PRESENT[0]] + _START


def check_room(past: Tensor, total: int) -> None:
    """Refuse a step after which the caches would have more rows than there is room for.

    Raises:
        ValueError: They would.
    """
    if total > past.shape[2]:
        raise ValueError(
            f"after the step there would be {total} rows in a cache that is bound with room for "
            f"{past.shape[2]}; bind larger ones"
        )


def put_rows(caches: list[Tensor], fresh: list[Tensor], starts: list[Tensor], word: Tensor | None) -> None:
    """Put new rows into caches, unless a word tells of bad data.

    Args:
        caches: [B, G, C, D] each.
        fresh: [B, G, L, D] each.
        starts: Where the rows of each sample belong, int64 [B], none where it is negative; or int64 [B, 3] of
            that, how many rows from the first on make way for those behind them, and how many of the new rows
            count. None are put in front of the first row, nor behind the last one.
        word: The validation word.
    """
    tensors = [*caches, *fresh, *starts] if word is None else [*caches, *fresh, *starts, word]
    dense = all(cache.stride(3) == 1 for cache in caches)
    op = native.device_op("cache_append_", *tensors) if dense else None
    if op is not None:
        op(caches, fresh, starts, word)
        return
    for cache, rows, start in zip(caches, fresh, starts, strict=True):
        row = torch.arange(cache.shape[2], device=start.device)
        first, moved, count = _place(start, rows.shape[2])
        source = row - first
        fresh_there = (first >= -count) & (source >= 0) & (source < count)
        old = torch.where(row < first, row + moved, row).clamp(max=cache.shape[2] - 1)
        if word is not None:
            good = word[0] == 0
            fresh_there, old = fresh_there & good, torch.where(good, old, row)
        index = source.clamp(0, rows.shape[2] - 1)[:, None, :, None].expand(cache.shape)
        stays = cache.gather(2, old[:, None, :, None].expand(cache.shape))
        cache.copy_(torch.where(fresh_there[:, None, :, None], rows.gather(2, index), stays))


def _place(start: Tensor, length: int) -> tuple[Tensor, Tensor | int, Tensor | int]:
    """Where new rows go, how many rows make way, and how many new ones count, each [B, 1]."""
    if start.dim() == 1:
        first = start.reshape(-1, 1)
        # A place that is not there is as far away as to be in front of all rows.
        return torch.where(first < 0, -length - 1, first), 0, length
    first, moved, count = start.unsqueeze(2).unbind(1)
    return first, moved, count
