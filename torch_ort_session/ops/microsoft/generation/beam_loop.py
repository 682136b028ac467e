"""Texts of the best scores, by several beams a sample: what BeamSearch and WhisperBeamSearch share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torch_ort_session.ops.kernel import KernelContext
from torch_ort_session.ops.microsoft.generation.decoder_bodies import Search
from torch_ort_session.ops.microsoft.generation.hypotheses import Goals, closed, next_beams, no_hypotheses
from torch_ort_session.ops.microsoft.generation.token_loop import begin, of_vocab
from torch_ort_session.ops.microsoft.generation.token_scores import ScoreRules, check_rules, ruled


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found.

    Attributes:
        texts: int32 [B, N, L].
        scores: [B, N]; None where nobody asks.
        steps: [L - S, B, K, V], the scores of all steps; None where nobody asks.
        opening: float32 [B, V], logarithms of the probabilities of the first new token.
    """

    texts: Tensor
    scores: Tensor | None
    steps: Tensor | None
    opening: Tensor


def search_beams(
    search: Search, rules: ScoreRules, goals: Goals, counts: tuple[int, int], ctx: KernelContext
) -> Found:
    """The texts of the best scores.

    Args:
        search: What it starts from.
        rules: What is done to scores.
        goals: What is looked for.
        counts: K and N.
        ctx: Context of the running kernel, which must be declared with ``seam=`` and ``checks=True``.

    Returns:
        What BeamSearch gives.

    Raises:
        ValueError: Inputs or bodies that do not fit each other.
    """
    beams, kept = counts
    if not 1 <= kept <= beams:
        raise ValueError(f"num_return_sequences {kept} is not within 1 and {beams} beams.")
    decoder, text = begin(search, beams, ctx)
    known = no_hypotheses(text, beams)
    batch, start = known.scores.shape[0], decoder.text.shape[1]
    # The beams start from one text: all but the first are so far behind that their tokens are not taken.
    lag = torch.where(torch.arange(beams, device=text.device) == 0, 0.0, -1e9)
    total = lag.to(torch.float32).repeat(batch)
    order: Tensor | None = None
    step_scores: list[Tensor] = []
    kind = torch.float32
    opening = total
    for step in range(search.limit - start):
        length = start + step
        logits = decoder.step(text[:, :length], order) if step else decoder.start()
        kind = logits.dtype
        scores = torch.log_softmax(of_vocab(search, logits), 1)
        if not step:
            opening = scores[::beams]
            check_rules(rules, batch, scores.shape[1])
        scores = ruled(rules, scores, text[:, :length], step, ctx) + total.unsqueeze(1)
        if ctx.wants(2):
            step_scores.append(scores.reshape(batch, beams, scores.shape[1]))
        went, known = next_beams(scores, text, length, known, goals)
        total = went.scores
        text = text.index_select(0, went.order)
        text[:, length] = went.tokens
        order = went.order if beams > 1 else None
        if bool(known.done.all().item()):
            break
    known = closed(known, total, text, goals)
    every: Tensor | None = None
    if ctx.wants(2):
        missing = search.limit - start - len(step_scores)
        every = torch.stack(step_scores + [torch.zeros_like(step_scores[0])] * missing).to(kind)
    return Found(
        texts=known.texts[:, :kept].to(torch.int32),
        scores=known.scores[:, :kept].to(kind) if ctx.wants(1) else None,
        steps=every,
        opening=opening,
    )
