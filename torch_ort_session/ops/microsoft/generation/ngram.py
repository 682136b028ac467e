"""Scores of a vocabulary without repetitions: NGramRepeatBlock.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import math

from torch import Tensor

from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.microsoft.generation.token_scores import repeating


@kernel("NGramRepeatBlock", domain="com.microsoft", since=(1,), checks=True, native=("check_range",))
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
    return scores.masked_fill(repeating(input_ids, ngram_size, scores.shape[1], ctx), -math.inf)
