"""Rows of tables by number: TorchEmbedding and WordConvEmbedding of com.microsoft.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ort_session.ops.common.checks import check_places
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.onnx.gather import gather


@kernel(
    "TorchEmbedding", domain="com.microsoft", since=(1,), checks=True, native=("check_index", "check_range")
)
def torch_embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: Tensor | None = None,
    scale_grad_by_freq: Tensor | None = None,
    *,
    ctx: KernelContext,
) -> Tensor:
    """The rows of a table that indices name.

    Args:
        weight: [N, M] of any type.
        indices: int64 of any shape.
        padding_idx: A row whose gradient is nothing; not used, as it changes no result.
        scale_grad_by_freq: Of the gradient too; not used.
        ctx: Where a bad index is reported.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.TorchEmbedding
    """
    return gather(weight, check_places(indices, weight.shape[0], Flag.INDEX, ctx), axis=0, ctx=ctx)


@kernel("WordConvEmbedding", domain="com.microsoft", since=(1,), checks=True, native=("check_range",))
def word_conv_embedding(
    sequence: Tensor,
    w: Tensor,
    b: Tensor,
    c: Tensor,
    *,
    char_embedding_size: int | None = None,
    conv_window_size: int | None = None,
    embedding_size: int | None = None,
    ctx: KernelContext,
) -> Tensor:
    """A vector for each word: the largest of what a convolution and tanh make of its characters.

    Args:
        sequence: int32 [..., L], words as numbers of characters, filled up with 0.
        w: [D, 1, K, E].
        b: [D].
        c: Characters [N, E].
        char_embedding_size: E once more.
        conv_window_size: K once more.
        embedding_size: D once more.
        ctx: Where a bad character is reported.

    Returns:
        [..., D]: over as many windows as the word has characters for, at least one; zeros for a word that
        begins with 0.

    Raises:
        ValueError: The attributes do not fit the weights, or words have fewer places than a window.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.WordConvEmbedding
    """
    declared = (embedding_size, conv_window_size, char_embedding_size)
    sizes = (w.shape[0], w.shape[2], w.shape[3])
    if any(size is not None and size != real for size, real in zip(declared, sizes, strict=True)):
        raise ValueError(f"the attributes tell weights of other sizes than {list(sizes)}.")
    window, words = w.shape[2], sequence.reshape(-1, sequence.shape[-1])
    if words.shape[1] < window:
        raise ValueError(f"words of {words.shape[1]} places have no window of {window}.")
    rows = F.embedding(check_places(words, c.shape[0], Flag.INDEX, ctx), c)
    y = torch.tanh(F.conv1d(rows.transpose(1, 2), w.squeeze(1).transpose(1, 2), b))
    length = words.ne(0).sum(1, keepdim=True)
    place = torch.arange(y.shape[2], device=y.device)
    # tanh is above -2; the first window counts however short the word is.
    counts = (place == 0) | (place + window <= length)
    best = torch.where(counts.unsqueeze(1), y, -2.0).amax(2)
    kept = torch.where(words[:, :1] != 0, best, torch.zeros_like(best))
    return kept.reshape(*sequence.shape[:-1], w.shape[0])
