"""Tokens without padding: where each of them lies in the padded batch, and back.

A token offset int32 [B, L] holds places in the padded batch: of the N tokens that count, in their order,
then of the padding.
"""

from __future__ import annotations

from torch import Tensor

from torch_ort_session.ops.common.checks import check_places
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.kernel import KernelContext


def unpacked(tokens: Tensor, offset: Tensor, ctx: KernelContext) -> Tensor:
    """Tokens [N, ...] at their places in the padded batch [B, L, ...], zeros elsewhere.

    Args:
        tokens: What counts.
        offset: int32 [B, L].
        ctx: Context of a kernel declared with ``checks=True``.

    Raises:
        ValueError: There are more tokens than places.
    """
    batch, length = offset.shape
    if tokens.shape[0] > batch * length:
        raise ValueError(f"{tokens.shape[0]} tokens do not fit into {batch} times {length} places.")
    place = _places(tokens.shape[0], offset, ctx)
    padded = tokens.new_zeros((batch * length, *tokens.shape[1:])).index_copy(0, place, tokens)
    return padded.reshape(batch, length, *tokens.shape[1:])


def repacked(padded: Tensor, tokens: int, offset: Tensor, ctx: KernelContext) -> Tensor:
    """The tokens that count [N, ...] out of a padded batch [B, L, ...]."""
    return padded.flatten(0, 1).index_select(0, _places(tokens, offset, ctx))


def _places(tokens: int, offset: Tensor, ctx: KernelContext) -> Tensor:
    place = offset.reshape(-1)[:tokens]
    return check_places(place, offset.shape[0] * offset.shape[1], Flag.INDEX, ctx)
