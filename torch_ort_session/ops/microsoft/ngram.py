"""Scores of a vocabulary without repetitions: NGramRepeatBlock.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torch_ort_session.ops._helpers.index import check_index
from torch_ort_session.ops.kernel import KernelContext, kernel


@kernel("NGramRepeatBlock", domain="com.microsoft", since=(1,), checks=True)
def ngram_repeat_block(input_ids: Tensor, scores: Tensor, *, ngram_size: int, ctx: KernelContext) -> Tensor:
    """Scores with minus infinity for the tokens that would repeat an n-gram of the text so far.

    Args:
        input_ids: int64 [B, L].
        scores: [B, V].
        ngram_size: Length n of what may not be repeated.
        ctx: Where a token outside of the vocabulary is reported, if it is to be barred.

    Returns:
        [B, V].

    Raises:
        ValueError: ``ngram_size`` is not positive.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.NGramRepeatBlock
    """
    if ngram_size < 1:
        raise ValueError(f"ngram_size {ngram_size} is not positive.")
    length = input_ids.shape[1]
    if length < ngram_size:
        return scores.clone()
    grams = input_ids.unfold(1, ngram_size, 1)
    last = input_ids[:, length - ngram_size + 1 :].unsqueeze(1)
    repeated = (grams[:, :, :-1] == last).all(-1)
    token = check_index(torch.where(repeated, grams[:, :, -1], 0), scores.shape[1], ctx)
    found = torch.zeros(scores.shape, dtype=torch.int32, device=scores.device)
    return scores.masked_fill(found.scatter_add(1, token, repeated.to(torch.int32)) > 0, -math.inf)
