"""Caches whose owner puts the new rows into them: a node then gives the rows in place of whole caches.

Only a binding asks for it, of a node whose caches are its states: see ``runtime/sharing.py``. It names an
output that no schema has, behind all others, which takes where the rows of each sample belong.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from torch_ort_session.ir.graph import Node
from torch_ort_session.ops import native

_START = " start"
_PAST, _PRESENT, _PLACE = (3, 4), (1, 2), 4
_COUNT = 16
"""Places among the inputs and outputs of GroupQueryAttention; the last one tells which new rows count."""


def caches_of(node: Node) -> tuple[tuple[str, str], ...]:
    """Past and present of keys and of values, where a node can give the rows in place of the caches."""
    if node.op != "GroupQueryAttention" or node.domain != "com.microsoft":
        return ()
    if node.attributes.get("sliding_window_cache") or any(node.inputs[_COUNT:]) or len(node.outputs) < 3:
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
        starts: Where the rows of each sample belong, int64 [B]; none are put where it is negative, nor behind
            the last row.
        word: The validation word.
    """
    given = [*caches, *fresh, *starts] if word is None else [*caches, *fresh, *starts, word]
    dense = all(cache.stride(3) == 1 for cache in caches)
    op = native.device_op("cache_append_", *given) if dense else None
    if op is not None:
        op(caches, fresh, starts, word)
        return
    for cache, rows, start in zip(caches, fresh, starts, strict=True):
        first = start.reshape(-1, 1)
        source = torch.arange(cache.shape[2], device=start.device) - first
        fresh_there = (first >= 0) & (source >= 0) & (source < rows.shape[2])
        if word is not None:
            fresh_there = fresh_there & (word[0] == 0)
        index = source.clamp(0, rows.shape[2] - 1)[:, None, :, None].expand(cache.shape)
        cache.copy_(torch.where(fresh_there[:, None, :, None], rows.gather(2, index), cache))
