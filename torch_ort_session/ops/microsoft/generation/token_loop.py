"""Texts that go on token by token, each by itself: what GreedySearch and Sampling have in common."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from torch_ort_session.ops.kernel import KernelContext
from torch_ort_session.ops.microsoft.generation.decoder_bodies import Decoder, Search, decoder_of
from torch_ort_session.ops.microsoft.generation.token_scores import ScoreRules, check_rules, ruled


def begin(search: Search, beams: int, ctx: KernelContext) -> tuple[Decoder, Tensor]:
    """The decoder of a search, and its texts with room for all tokens.

    Args:
        search: What it starts from.
        beams: Texts a sample.
        ctx: Context of the running kernel.

    Returns:
        The decoder, and int64 [B * beams, L], where padding stands behind what the texts start with.

    Raises:
        ValueError: There is no room for a token, or the bodies are not those of a search.
    """
    decoder = decoder_of(search, beams, ctx)
    text = decoder.text
    room = search.limit - text.shape[1]
    if room < 1:
        raise ValueError(f"max_length {search.limit} leaves no room after {text.shape[1]} tokens.")
    return decoder, torch.cat((text, text.new_full((text.shape[0], room), search.pad)), 1)


def of_vocab(search: Search, logits: Tensor) -> Tensor:
    """The scores of the tokens of the vocabulary: float32 [R, V]."""
    return (logits if search.vocab < 1 else logits[:, : search.vocab]).to(torch.float32)


def run_tokens(
    search: Search,
    rules: ScoreRules,
    choose: Callable[[Tensor], Tensor],
    ctx: KernelContext,
) -> Tensor:
    """Texts that go on with a token each step, until each has ended or is long enough.

    Args:
        search: What it starts from.
        rules: What is done to scores.
        choose: Takes scores [B, V] and gives tokens int64 [B].
        ctx: Context of the running kernel, which must be declared with ``seam=`` and ``checks=True``.

    Returns:
        int32 [B, L].
    """
    decoder, text = begin(search, 1, ctx)
    ended = text.new_zeros(text.shape[0], dtype=torch.bool)
    start = decoder.text.shape[1]
    for step in range(search.limit - start):
        length = start + step
        logits = decoder.step(text[:, :length], None) if step else decoder.start()
        scores = of_vocab(search, logits)
        if not step:
            check_rules(rules, scores.shape[0], scores.shape[1])
        scores = ruled(rules, scores, text[:, :length], step, ctx)
        token = choose(scores)
        ended = ended | (token == rules.eos)
        text[:, length] = torch.where(ended, search.pad, token)
        if bool(ended.all().item()):
            break
    return text.to(torch.int32)
