"""Rules for tokens that are times, as Whisper has them: texts lie between pairs of times that do not fall."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_LATEST_START = 50
"""How many times after the first one a text may start with."""


@dataclass(frozen=True, slots=True)
class Stamps:
    """Tokens that are times, and those that stand for what is to be done.

    Attributes:
        eos: The token that ends a text; text lies before it.
        first: The first token that is a time; all after it are times too.
        never: Tokens that are not generated.
        once: Tokens that are not generated behind a time.
    """

    eos: int
    first: int
    never: tuple[int, ...]
    once: tuple[int, ...]


def stamped(stamps: Stamps, scores: Tensor, text: Tensor) -> Tensor:
    """Scores of tokens by the rules of times; what is barred gets the lowest finite score.

    After the first time, and after a pair, comes text; after a single time its pair, or the end. No time is
    before the one before it. Where times together are more probable than any token of text comes a time.

    Args:
        stamps: The tokens.
        scores: float32 [R, V], logarithms of probabilities.
        text: int64 [R, L], the tokens so far.

    Returns:
        float32 [R, V].
    """
    lowest = torch.finfo(scores.dtype).min
    length = text.shape[1]
    token = torch.arange(scores.shape[1], device=scores.device)
    is_time = token >= stamps.first
    times = text >= stamps.first
    some = times.any(1, keepdim=True)
    # Where the first time stands; where there is none, the text is all before it.
    begin = torch.where(some, times.to(torch.int32).argmax(1, keepdim=True) + 1, length)
    last = times[:, -1:]
    paired = (begin >= length) | times[:, max(length - 2, 0)].unsqueeze(1)
    place = torch.arange(length, device=text.device)
    latest = text.gather(1, torch.where(times, place, 0).amax(1, keepdim=True))
    least = torch.where(last & ~paired, latest, latest + 1)
    barred = _among(token, stamps.never) | ((begin < length) & _among(token, stamps.once))
    barred = barred | (last & paired & is_time) | (last & ~paired & (token < stamps.eos))
    barred = barred | (some & is_time & (token < least))
    barred = barred | ((begin == length) & (token > stamps.first + _LATEST_START))
    scores = scores.masked_fill(barred, lowest)
    of_times = scores.masked_fill(~is_time | (scores <= lowest), -torch.inf).logsumexp(1, keepdim=True)
    of_text = scores.masked_fill(is_time, -torch.inf).amax(1, keepdim=True)
    return scores.masked_fill((of_times > of_text) & ~is_time, lowest)


def _among(token: Tensor, some: tuple[int, ...]) -> Tensor:
    among = torch.zeros_like(token, dtype=torch.bool)
    for one in some:
        among = among | (token == one)
    return among
