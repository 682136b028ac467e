"""BeamSearch: the texts of the best scores, by several beams a sample.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from torch import Tensor

from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.microsoft.generation.beam_loop import search_beams
from torch_ort_session.ops.microsoft.generation.decoder_bodies import Search
from torch_ort_session.ops.microsoft.generation.hypotheses import Goals
from torch_ort_session.ops.microsoft.generation.timestamps import Stamps
from torch_ort_session.ops.microsoft.generation.token_scores import ScoreRules


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
    native=("check_range", "top_k"),
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
        logits_processor: 1 with model_type 2: the rules of Whisper's times; 0 for none.
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
    stamps = None
    if logits_processor:
        if logits_processor != 1 or model_type != 2:
            raise ValueError(f"logits_processor {logits_processor} of model_type {model_type} is not known.")
        # Where Whisper's tokenizer has them.
        stamps = Stamps(
            eos=eos_token_id,
            first=eos_token_id + 107,
            never=(eos_token_id + 105, eos_token_id + 106),
            once=(eos_token_id + 1, 50358, 50359),
        )
    search = Search(
        input_ids,
        attention_mask,
        decoder_input_ids,
        max_length,
        vocab_size,
        pad_token_id,
        model_type,
        decoder_start_token_id,
    )
    rules = ScoreRules(
        eos=eos_token_id,
        min_length=min_length or 0,
        repetition_penalty=1.0 if repetition_penalty is None else repetition_penalty,
        ngram=no_repeat_ngram_size,
        vocab_mask=vocab_mask,
        prefix_mask=prefix_vocab_mask,
        stamps=stamps,
    )
    goals = Goals(
        eos=eos_token_id,
        pad=pad_token_id,
        length_penalty=1.0 if length_penalty is None else length_penalty,
        early=early_stopping == 1,
    )
    beams = search_beams(search, rules, goals, (num_beams, num_return_sequences), ctx)
    return beams.texts, beams.scores, beams.steps
