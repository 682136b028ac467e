"""Sampling: tokens drawn by their probability, of the most probable ones.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from torch_ort_session.ops.common.checks import check_each, looks_at_floats
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.microsoft.generation.decoder_bodies import Search
from torch_ort_session.ops.microsoft.generation.drawing import drawn_tokens
from torch_ort_session.ops.microsoft.generation.token_loop import run_tokens
from torch_ort_session.ops.microsoft.generation.token_scores import ScoreRules

_NOTHING = -1e19
"""A score from which down a token is never drawn, whatever the others are."""


@kernel(
    "Sampling",
    domain="com.microsoft",
    since=(1,),
    host=("max_length", "min_length", "repetition_penalty", "seed"),
    seam="how many tokens come depends on the data",
    varies=True,
    checks=looks_at_floats,
    native=("check_range", "sample_token"),
)
def sampling(
    input_ids: Tensor,
    max_length: int,
    min_length: int | None = None,
    repetition_penalty: float | None = None,
    vocab_mask: Tensor | None = None,
    prefix_vocab_mask: Tensor | None = None,
    attention_mask: Tensor | None = None,
    presence_mask: Tensor | None = None,
    seed: int | None = None,
    *,
    custom: int = 0,
    decoder_start_token_id: int = -1,
    eos_token_id: int,
    filter_value: float = -1e20,
    min_tokens_to_keep: int = 0,
    model_type: int = 0,
    no_repeat_ngram_size: int = 0,
    pad_token_id: int,
    presence_penalty: float = 0.0,
    temperature: float = 1.0,
    top_p: float = 0.0,
    vocab_size: int = -1,
    ctx: KernelContext,
) -> tuple[Tensor, Tensor | None]:
    """Texts that go on with tokens drawn by their probability, until each has ended or is long enough.

    Of the tokens in the order of their probability the least probable are left out that together have no more
    than ``1 - top_p``; with ``custom``, those before which the more probable ones have more than ``top_p``.
    The most probable one always stays.

    The bodies are called as by GreedySearch; one host read a step asks whether all texts have ended.

    Args:
        input_ids: int32 [B, S], the prompts.
        max_length: L, greatest length of a text, greater than S.
        min_length: Length below which no text ends.
        repetition_penalty: What makes scores of tokens of the text so far worse; None is 1.
        vocab_mask: int32 [V], 0 for what is barred.
        prefix_vocab_mask: int32 [B, V], 0 for what is barred as the first new token.
        attention_mask: int32 [B, S], 1 for what is in sight; None takes all but padding.
        presence_mask: int32 [B, V], how often ``presence_penalty`` is taken off a score.
        seed: Seed; None takes one from torch's own generator.
        custom: Which tokens are left out, see above.
        decoder_start_token_id: What texts start with after an encoder.
        eos_token_id: The token that ends a text.
        filter_value: Score of a token that is left out.
        min_tokens_to_keep: How many tokens stay at least, without ``custom``.
        model_type: 0 for a decoder alone, 1 for one after the body ``encoder``.
        no_repeat_ngram_size: Length of what no text repeats; 0 for no such rule.
        pad_token_id: Padding.
        presence_penalty: See ``presence_mask``.
        temperature: What scores are divided by.
        top_p: See above.
        vocab_size: V; -1 takes that of the scores.
        ctx: The bodies, and where a token outside of the vocabulary is reported.

    Returns:
        Texts int32 [B, L], and the scores [B, V] that the last tokens were drawn by.

    Raises:
        ValueError: Inputs or bodies that do not fit each other.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.Sampling
    """
    penalty = None
    if presence_mask is not None and presence_penalty:
        penalty = presence_mask.to(torch.float32) * presence_penalty
    rules = ScoreRules(
        eos=eos_token_id,
        min_length=min_length or 0,
        repetition_penalty=1.0 if repetition_penalty is None else repetition_penalty,
        ngram=no_repeat_ngram_size,
        vocab_mask=vocab_mask,
        prefix_mask=prefix_vocab_mask,
        temperature=temperature,
        presence=penalty,
    )
    # Where nothing comes behind the temperature, and nobody reads the scores, it is part of the draw.
    inside = penalty is None and not ctx.wants(1) and temperature > 0
    rules = replace(rules, temperature=1.0) if inside else rules
    device = input_ids.device
    if seed is None:
        state = torch.randint(2**63 - 1, (2,), device=device)
    else:
        state = torch.tensor([seed, 0], device=device)
    drawn_by: list[Tensor] = []
    keep = 1 if custom else max(min_tokens_to_keep, 1)

    def draw(scores: Tensor) -> Tensor:
        scores, share = scores.detach(), top_p
        if ctx.wants(1) or filter_value > _NOTHING:
            scores = scores.masked_fill(left_out(scores, top_p, custom != 0, keep), filter_value)
            share = math.inf
            drawn_by[:] = [scores]
        token = drawn_tokens(
            scores,
            state,
            temperature=temperature if inside else 1.0,
            top_p=share,
            keep=keep,
            closed=custom != 0,
        )
        good = token >= 0
        if not check_each(good, Flag.DISTRIBUTION, ctx) and token.is_cpu:
            torch._assert_async(good.all(), "scores that are not finite leave nothing to draw")
        return token.clamp_min(0)

    search = Search(
        input_ids,
        attention_mask,
        None,
        max_length,
        vocab_size,
        pad_token_id,
        model_type,
        decoder_start_token_id,
    )
    text = run_tokens(search, rules, draw, ctx)
    return text, drawn_by[0] if ctx.wants(1) else None


def left_out(scores: Tensor, top_p: float, custom: bool, keep: int) -> Tensor:
    """Which tokens are not drawn: see :func:`sampling`.

    Args:
        scores: float32 [B, V].
        top_p: Probability that stays.
        custom: Whether what is left out is found from the most probable token down.
        keep: How many tokens stay at least, where it is not.

    Returns:
        bool [B, V].
    """
    ordered, order = torch.sort(scores, dim=1, descending=custom, stable=True)
    reached = torch.softmax(ordered, 1).cumsum(1)
    rank = torch.arange(scores.shape[1], device=scores.device)
    if custom:
        out = torch.cat((torch.zeros_like(reached[:, :1], dtype=torch.bool), reached[:, :-1] > top_p), 1)
    else:
        out = (reached <= 1 - top_p) & (rank < scores.shape[1] - max(keep, 1))
    return torch.zeros_like(out).scatter(1, order, out)
