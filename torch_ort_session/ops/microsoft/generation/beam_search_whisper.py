"""WhisperBeamSearch: BeamSearch for speech, with rules for the tokens that are times.

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
    "WhisperBeamSearch",
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
        "temperature",
    ),
    seam="how many tokens come depends on the data",
    checks=True,
    native=("check_range", "top_k"),
)
def whisper_beam_search(
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
    cross_qk_layer_head: Tensor | None = None,
    extra_decoding_ids: Tensor | None = None,
    temperature: float | None = None,
    *,
    beginning_timestamp_token_id: int = -1,
    decoder_output_cross_qk: int = 0,
    decoder_start_token_id: int = -1,
    early_stopping: int = 0,
    eos_token_id: int,
    model_type: int = 2,
    no_repeat_ngram_size: int = 0,
    no_speech_token_id: int = -1,
    no_timestamps_token_id: int = -1,
    pad_token_id: int,
    start_of_lm_token_id: int = -1,
    transcribe_token_id: int = -1,
    translate_token_id: int = -1,
    vocab_size: int = -1,
    ctx: KernelContext,
) -> tuple[Tensor, Tensor | None, Tensor | None, None, Tensor | None]:
    """The texts of the best scores of what the body ``encoder`` hears.

    As BeamSearch; the scores of attention to the source are not collected.

    Args:
        input_ids: [B, features, frames], what the encoder reads.
        max_length: L, greatest length of a text.
        min_length: Length below which no text ends.
        num_beams: K.
        num_return_sequences: N, at most K.
        length_penalty: Power of the length that the score of a text is divided by; None is 1.
        repetition_penalty: What makes scores of tokens of the text so far worse; None is 1.
        vocab_mask: int32 [V], 0 for what is barred.
        prefix_vocab_mask: int32 [B, V], 0 for what is barred as the first new token.
        attention_mask: int32, for an encoder that takes one.
        decoder_input_ids: int32 [B, S], what texts start with; None is ``decoder_start_token_id``.
        logits_processor: 1: times come in pairs, and do not fall; 0: no such rule.
        cross_qk_layer_head: Not supported.
        extra_decoding_ids: Not supported.
        temperature: What scores are divided by; None is 1.
        beginning_timestamp_token_id: The first token that is a time.
        decoder_output_cross_qk: Not supported.
        decoder_start_token_id: See above.
        early_stopping: Whether a sample is done as soon as it has as many texts as beams.
        eos_token_id: The token that ends a text; it is no part of it.
        model_type: 2.
        no_repeat_ngram_size: Length of what no text repeats; 0 for no such rule.
        no_speech_token_id: The token that says that there is no speech.
        no_timestamps_token_id: The token that says that there are no times.
        pad_token_id: Padding.
        start_of_lm_token_id: A token that is not generated.
        transcribe_token_id: The token of a task.
        translate_token_id: The token of another task.
        vocab_size: V; -1 takes that of the scores.
        ctx: The bodies, and where a token outside of the vocabulary is reported.

    Returns:
        Texts, their scores and those of all steps as by BeamSearch, nothing, and float32 [B], how probable
        ``no_speech_token_id`` is as the first new token.

    Raises:
        ValueError: Inputs or bodies that do not fit each other, or what is not supported.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.WhisperBeamSearch
    """
    if decoder_output_cross_qk or ctx.wants(3) or cross_qk_layer_head is not None:
        raise ValueError("the scores of attention to the source (cross_qk) are not supported.")
    if extra_decoding_ids is not None and extra_decoding_ids.numel():
        raise ValueError("extra_decoding_ids is not supported.")
    if model_type != 2:
        raise ValueError(f"model_type {model_type} is not 2.")
    stamps = None
    if logits_processor:
        if logits_processor != 1 or beginning_timestamp_token_id < 0:
            raise ValueError(
                f"logits_processor {logits_processor} with beginning_timestamp_token_id "
                f"{beginning_timestamp_token_id} is not known."
            )
        stamps = Stamps(
            eos=eos_token_id,
            first=beginning_timestamp_token_id,
            never=(start_of_lm_token_id, no_timestamps_token_id),
            once=(decoder_start_token_id, translate_token_id, transcribe_token_id),
        )
    rules = ScoreRules(
        eos=eos_token_id,
        min_length=min_length or 0,
        repetition_penalty=1.0 if repetition_penalty is None else repetition_penalty,
        ngram=no_repeat_ngram_size,
        vocab_mask=vocab_mask,
        prefix_mask=prefix_vocab_mask,
        temperature=1.0 if temperature is None else temperature,
        stamps=stamps,
    )
    goals = Goals(
        eos=eos_token_id,
        pad=pad_token_id,
        length_penalty=1.0 if length_penalty is None else length_penalty,
        early=early_stopping == 1,
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
    beams = search_beams(search, rules, goals, (num_beams, num_return_sequences), ctx)
    silence: Tensor | None = None
    if ctx.wants(4):
        if not 0 <= no_speech_token_id < beams.opening.shape[1]:
            raise ValueError(f"no_speech_token_id {no_speech_token_id} is no token.")
        silence = beams.opening[:, no_speech_token_id].exp()
    return beams.texts, beams.scores, beams.steps, None, silence
