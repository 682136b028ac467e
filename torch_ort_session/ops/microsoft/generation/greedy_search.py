"""GreedySearch: the most probable token, again and again.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from torch import Tensor

from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.microsoft.generation.decoder_bodies import Search
from torch_ort_session.ops.microsoft.generation.token_loop import run_tokens
from torch_ort_session.ops.microsoft.generation.token_scores import ScoreRules


@kernel(
    "GreedySearch",
    domain="com.microsoft",
    since=(1,),
    host=("max_length", "min_length", "repetition_penalty"),
    seam="how many tokens come depends on the data",
    checks=True,
    native=("check_range",),
)
def greedy_search(
    input_ids: Tensor,
    max_length: int,
    min_length: int | None = None,
    repetition_penalty: float | None = None,
    vocab_mask: Tensor | None = None,
    prefix_vocab_mask: Tensor | None = None,
    attention_mask: Tensor | None = None,
    *,
    decoder_start_token_id: int = -1,
    eos_token_id: int,
    model_type: int = 0,
    no_repeat_ngram_size: int = 0,
    pad_token_id: int,
    vocab_size: int = -1,
    ctx: KernelContext,
) -> Tensor:
    """Texts that go on with the token of the highest score, until each has ended or is long enough.

    The attribute ``decoder`` is a body that makes the scores, ``init_decoder`` one of the first step. The
    bodies are called step by step, each with the caches of the step before; one host read a step asks whether
    all texts have ended. In the place of the token that ends a text, and after it, stands padding.

    Args:
        input_ids: int32 [B, S], the prompts.
        max_length: L, greatest length of a text, greater than S.
        min_length: Length below which no text ends.
        repetition_penalty: What makes scores of tokens of the text so far worse; None is 1.
        vocab_mask: int32 [V], 0 for what is barred.
        prefix_vocab_mask: int32 [B, V], 0 for what is barred as the first new token.
        attention_mask: int32 [B, S], 1 for what is in sight; None takes all but padding.
        decoder_start_token_id: What texts start with after an encoder.
        eos_token_id: The token that ends a text.
        model_type: 0 for a decoder alone, 1 for one after the body ``encoder``.
        no_repeat_ngram_size: Length of what no text repeats; 0 for no such rule.
        pad_token_id: Padding.
        vocab_size: V; -1 takes that of the scores.
        ctx: The bodies, and where a token outside of the vocabulary is reported.

    Returns:
        int32 [B, L].

    Raises:
        ValueError: Inputs or bodies that do not fit each other.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.GreedySearch
    """
    rules = ScoreRules(
        eos=eos_token_id,
        min_length=min_length or 0,
        repetition_penalty=1.0 if repetition_penalty is None else repetition_penalty,
        ngram=no_repeat_ngram_size,
        vocab_mask=vocab_mask,
        prefix_mask=prefix_vocab_mask,
    )
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
    return run_tokens(search, rules, lambda scores: scores.argmax(1), ctx)
