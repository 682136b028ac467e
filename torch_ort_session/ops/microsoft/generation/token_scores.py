"""Rules that change the scores of a vocabulary before a search takes its next tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torch_ort_session.ops.common.checks import check_places
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.kernel import KernelContext
from torch_ort_session.ops.microsoft.generation.timestamps import Stamps, stamped


@dataclass(frozen=True, slots=True)
class ScoreRules:
    """What a search does to the scores of its next tokens, in this order.

    Attributes:
        repetition_penalty: What the scores of tokens of the text so far are made worse by; 1 for nothing.
        ngram: Length of what may not be repeated; 0 for no such rule.
        vocab_mask: int32 [V], 0 for a token that is barred; None bars none.
        prefix_mask: int32 [B, V], the same at the first step only; a sample has R / B texts.
        min_length: Length of the text below which it does not end.
        eos: The token that ends it.
        temperature: What scores are divided by.
        presence: [B, V], what is taken off the scores; with one text a sample.
        stamps: The tokens that are times, where there are such; None where there are none.
    """

    eos: int
    min_length: int = 0
    repetition_penalty: float = 1.0
    ngram: int = 0
    vocab_mask: Tensor | None = None
    prefix_mask: Tensor | None = None
    temperature: float = 1.0
    presence: Tensor | None = None
    stamps: Stamps | None = None


def check_rules(rules: ScoreRules, batch: int, vocab: int) -> None:
    """Refuse rules that do not fit the scores.

    Args:
        rules: The rules.
        batch: B.
        vocab: V.

    Raises:
        ValueError: A mask of another shape, a token that does not exist, a penalty that is not positive.
    """
    if not rules.repetition_penalty > 0:
        raise ValueError(f"repetition_penalty {rules.repetition_penalty} is not positive.")
    if rules.min_length > 0 and not 0 <= rules.eos < vocab:
        raise ValueError(f"eos_token_id {rules.eos} is none of {vocab} tokens.")
    shaped = (
        ("vocab_mask", rules.vocab_mask, (vocab,)),
        ("prefix_vocab_mask", rules.prefix_mask, (batch, vocab)),
        ("presence_mask", rules.presence, (batch, vocab)),
    )
    for name, tensor, wanted in shaped:
        if tensor is not None and tuple(tensor.shape) != wanted:
            raise ValueError(f"{name} has shape {list(tensor.shape)}, not {list(wanted)}.")


def ruled(rules: ScoreRules, scores: Tensor, text: Tensor, step: int, ctx: KernelContext) -> Tensor:
    """Scores by the rules; what is barred gets the lowest finite score.

    Args:
        rules: The rules.
        scores: float32 [R, V].
        text: int64 [R, L], the tokens so far.
        step: Number of the step, from 0.
        ctx: Where a token outside of the vocabulary is reported; of a kernel with ``checks=True``.

    Returns:
        float32 [R, V].
    """
    lowest = torch.finfo(scores.dtype).min
    vocab = scores.shape[1]
    if rules.repetition_penalty != 1.0:
        used = marked(text, torch.ones_like(text, dtype=torch.bool), vocab, ctx)
        by = rules.repetition_penalty
        scores = torch.where(used, torch.where(scores < 0, scores * by, scores / by), scores)
    if 0 < rules.ngram <= text.shape[1]:
        scores = scores.masked_fill(repeating(text, rules.ngram, vocab, ctx), lowest)
    if rules.vocab_mask is not None:
        scores = scores.masked_fill(rules.vocab_mask == 0, lowest)
    if rules.prefix_mask is not None and step == 0:
        texts = scores.shape[0] // max(rules.prefix_mask.shape[0], 1)
        scores = scores.masked_fill((rules.prefix_mask == 0).repeat_interleave(texts, 0), lowest)
    if text.shape[1] < rules.min_length:
        ends = torch.arange(vocab, device=scores.device) == rules.eos
        scores = scores.masked_fill(ends, lowest)
    if rules.temperature != 1.0 and rules.temperature > 0:
        scores = scores / rules.temperature
    if rules.presence is not None:
        scores = scores - rules.presence
    return scores if rules.stamps is None else stamped(rules.stamps, scores, text)


def repeating(text: Tensor, size: int, vocab: int, ctx: KernelContext) -> Tensor:
    """The tokens that would end an n-gram that the text already has.

    Args:
        text: Integer [R, L], of at least ``size`` tokens.
        size: Length of an n-gram.
        vocab: V.
        ctx: Where such a token outside of the vocabulary is reported; of a kernel with ``checks=True``.

    Returns:
        bool [R, V].
    """
    grams = text.unfold(1, size, 1)
    last = text[:, text.shape[1] - size + 1 :].unsqueeze(1)
    return marked(grams[:, :, -1], (grams[:, :, :-1] == last).all(-1), vocab, ctx)


def marked(tokens: Tensor, which: Tensor, vocab: int, ctx: KernelContext) -> Tensor:
    """The tokens among some: bool [R, V], of tokens [R, N] those that ``which`` [R, N] names."""
    place = check_places(torch.where(which, tokens, 0), vocab, Flag.INDEX, ctx)
    counts = torch.zeros((tokens.shape[0], vocab), dtype=torch.int32, device=tokens.device)
    return counts.scatter_add(1, place, which.to(torch.int32)) > 0
