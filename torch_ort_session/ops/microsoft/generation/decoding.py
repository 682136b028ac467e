"""BifurcationDetector: where a guess of the next tokens and the prediction part.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.kernel import kernel


@kernel(
    "BifurcationDetector",
    domain="com.microsoft",
    since=(1,),
    seam="the number of tokens depends on the data",
)
def bifurcation_detector(
    src_tokens: Tensor,
    cur_tokens: Tensor,
    prev_suffix_match_idx: Tensor,
    pred_tokens: Tensor | None = None,
    *,
    max_ngram_size: int = 3,
    min_ngram_size: int = 1,
) -> tuple[Tensor, Tensor]:
    """The tokens with as much of the prediction as the source foretold, and where the source goes on.

    The prediction is taken up to and with its first token that is not the source's. Then the last tokens of
    all are looked for in the source: the shortest run of them that appears there exactly once tells the place
    after it.

    Args:
        src_tokens: int64 [S].
        cur_tokens: int64 [C].
        prev_suffix_match_idx: int64 [] or [1]: where in the source the prediction starts.
        pred_tokens: int64 [S + 1 - start].
        max_ngram_size: Longest run looked for.
        min_ngram_size: Shortest run looked for.

    Returns:
        The tokens, and the place in the source, -1 for none, in the shape of
        ``prev_suffix_match_idx``.

    Raises:
        ValueError: The start or the number of predicted tokens does not fit the source.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
    """
    tokens, total = cur_tokens, src_tokens.shape[0]
    if pred_tokens is not None:
        start = int(prev_suffix_match_idx)
        if not 0 <= start <= total or pred_tokens.shape[0] != total + 1 - start:
            raise ValueError(
                f"{pred_tokens.shape[0]} predicted tokens do not follow from place {start} of {total} tokens."
            )
        agreed = (pred_tokens[:-1] == src_tokens[start:]).cumprod(0).sum()
        tokens = torch.cat((cur_tokens, pred_tokens[: int(agreed) + 1]))
    place = -1
    for size in range(min_ngram_size, min(max_ngram_size, tokens.shape[0], total) + 1):
        matches = (src_tokens.unfold(0, size, 1) == tokens[tokens.shape[0] - size :]).all(1)
        count = int(matches.sum())
        if count == 1:
            place = int(matches.to(torch.uint8).argmax()) + size
        if count < 2:
            break
    return tokens, torch.full_like(prev_suffix_match_idx, place)
