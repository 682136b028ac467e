"""BeamSearch: the texts of the best scores, by several beams a sample.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops._helpers.hypotheses import Goals, closed, next_beams, no_hypotheses
from torch_ort_session.ops._helpers.token_loop import Search, begin, of_vocab
from torch_ort_session.ops._helpers.token_scores import ScoreRules, check_rules, ruled
from torch_ort_session.ops.kernel import KernelContext, kernel


@kernel(
    "BeamSearch",
    domain="com.microsoft",
    since=(1,),
    host=(
        "max_length",
        "min_length",
        "num_beams",
        "num_return_sequences",
        "length_penalty",
        "repetition_penalty",
        "logits_processor",
    ),
    seam="how many tokens come depends on the data",
    checks=True,
)
def beam_search(
    input_ids: Tensor,
    max_length: int,
    min_length: int | None,
    num_beams: int,
    num_return_sequences: int,
    length_penalty: float | None = None,
    repetition_penalty: float | None = None,
    vocab_mask: Tensor | None = None,
    prefix_vocab_mask: Tensor | None = None,
    attention_mask: Tensor | None = None,
    decoder_input_ids: Tensor | None = None,
    logits_processor: int | None = None,
    *,
    decoder_start_token_id: int = -1,
    early_stopping: int = 0,
    eos_token_id: int,
    model_type: int = 0,
    no_repeat_ngram_size: int = 0,
    pad_token_id: int,
    vocab_size: int = -1,
    ctx: KernelContext,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The texts of the best scores that several beams a sample come to.

    The attribute ``decoder`` is a body that makes the scores, ``init_decoder`` one of the first step,
    ``encoder`` one that is called before it. The bodies are called step by step, each with the caches of the
    step before in the order of the beams; one host read a step asks whether all samples are done. A sample is
    done when no beam can become better than its worst finished text, or as soon as it has as many as beams.

    Args:
        input_ids: int32 [B, S], the prompts, or what the encoder reads.
        max_length: L, greatest length of a text.
        min_length: Length below which no text ends.
        num_beams: K.
        num_return_sequences: N, at most K.
        length_penalty: Power of the length that the score of a text is divided by; None is 1.
        repetition_penalty: What makes scores of tokens of the text so far worse; None is 1.
        vocab_mask: int32 [V], 0 for what is barred.
        prefix_vocab_mask: int32 [B, V], 0 for what is barred as the first new token.
        attention_mask: int32 [B, S], 1 for what is in sight; None takes all but padding.
        decoder_input_ids: int32 [B, S'], what texts start with after an encoder.
        logits_processor: 0: no further rule is known here.
        decoder_start_token_id: What texts start with else.
        early_stopping: Whether a sample is done as soon as it has as many texts as beams.
        eos_token_id: The token that ends a text; it is no part of it.
        model_type: 0 for a decoder alone, 1 and 2 for one after an encoder.
        no_repeat_ngram_size: Length of what no text repeats; 0 for no such rule.
        pad_token_id: Padding.
        vocab_size: V; -1 takes that of the scores.
        ctx: The bodies, and where a token outside of the vocabulary is reported.

    Returns:
        Texts int32 [B, N, L] with padding behind them, best first; their scores [B, N]; and the scores of all
        tokens at all steps [L - S, B, K, V], 0 for steps that were not made.

    Raises:
        ValueError: Inputs or bodies that do not fit each other, or a rule that is not known.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.BeamSearch
    """
    if logits_processor:
        raise ValueError(f"logits_processor {logits_processor} is not known.")
    if not 1 <= num_return_sequences <= num_beams:
        raise ValueError(
            f"num_return_sequences {num_return_sequences} is not within 1 and {num_beams} beams."
        )
    search = Search(input_ids, attention_mask, decoder_input_ids, max_length, vocab_size, pad_token_id)
    rules = ScoreRules(
        eos=eos_token_id,
        min_length=min_length or 0,
        repetition_penalty=1.0 if repetition_penalty is None else repetition_penalty,
        ngram=no_repeat_ngram_size,
        vocab_mask=vocab_mask,
        prefix_mask=prefix_vocab_mask,
    )
    goals = Goals(
        eos=eos_token_id,
        pad=pad_token_id,
        length_penalty=1.0 if length_penalty is None else length_penalty,
        early=early_stopping == 1,
    )
    return search_beams(search, rules, goals, (num_beams, num_return_sequences), ctx)


def search_beams(
    search: Search, rules: ScoreRules, goals: Goals, counts: tuple[int, int], ctx: KernelContext
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The texts of the best scores.

    Args:
        search: What it starts from.
        rules: What is done to scores.
        goals: What is looked for.
        counts: K and N.
        ctx: Context of the running kernel, which must be declared with ``seam=`` and ``checks=True``.

    Returns:
        What BeamSearch gives.
    """
    beams, kept = counts
    decoder, text = begin(search, beams, ctx)
    known = no_hypotheses(text, beams)
    batch, start = known.scores.shape[0], decoder.text.shape[1]
    # The beams start from one text: all but the first are so far behind that their tokens are not taken.
    lag = torch.where(torch.arange(beams, device=text.device) == 0, 0.0, -1e9)
    total = lag.to(torch.float32).repeat(batch)
    order: Tensor | None = None
    told: list[Tensor] = []
    kind = torch.float32
    for step in range(search.limit - start):
        length = start + step
        logits = decoder.step(text[:, :length], order) if step else decoder.start()
        kind = logits.dtype
        scores = torch.log_softmax(of_vocab(search, logits), 1)
        if not step:
            check_rules(rules, batch, scores.shape[1])
        scores = ruled(rules, scores, text[:, :length], step, ctx) + total.unsqueeze(1)
        if ctx.wants(2):
            told.append(scores.reshape(batch, beams, -1))
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
        missing = search.limit - start - len(told)
        every = torch.stack(told + [torch.zeros_like(told[0])] * missing).to(kind)
    return (
        known.texts[:, :kept].to(torch.int32),
        known.scores[:, :kept].to(kind) if ctx.wants(1) else None,
        every,
    )
