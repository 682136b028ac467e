"""Bodies that are decoders, called token by token: with a prompt of their own, or after an encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from torch_ort_session.errors import InputError
from torch_ort_session.ops.kernel import KernelContext
from torch_ort_session.ops.microsoft.generation.decoder_prompt import PromptDecoder
from torch_ort_session.ops.microsoft.generation.decoder_source import SourceDecoder

_ENCODER_DECODERS = (1, 2)
"""Model types of which the decoder follows an encoder."""


@dataclass(frozen=True, slots=True)
class Search:
    """What a search starts from.

    Attributes:
        source: [B, S], the prompts, or what the encoder reads.
        mask: int32 [B, S], 1 for what is in sight; None takes all but padding.
        forced: int32 [B, S'], what texts start with after an encoder; None takes ``first``.
        limit: Greatest length of a text.
        vocab: V; below 1 takes that of the scores.
        pad: Padding.
        kind: Type of the model: 0 for a decoder alone, 1 and 2 for one after an encoder.
        first: What texts start with after an encoder.
    """

    source: Tensor
    mask: Tensor | None
    forced: Tensor | None
    limit: int
    vocab: int
    pad: int
    kind: int
    first: int


class Decoder(Protocol):
    """A decoder on its way through texts.

    Attributes:
        text: int64 [R, S], what each text starts with.
    """

    text: Tensor

    def start(self) -> Tensor:
        """Scores [R, V] of the first new tokens, in memory that the next call may write."""
        ...

    def step(self, text: Tensor, order: Tensor | None) -> Tensor:
        """Scores [R, V] of the tokens after a text [R, L], in memory that the next call may write.

        Args:
            text: int64; its last token is new.
            order: int64 [R], the text of the step before that each goes on from; None for itself.
        """
        ...


def decoder_of(search: Search, beams: int, ctx: KernelContext) -> Decoder:
    """The decoder of a search.

    Args:
        search: What it starts from.
        beams: Texts a sample.
        ctx: Context of the running kernel.

    Raises:
        ValueError: Bodies that are missing, or of other inputs and outputs than such bodies have.
        InputError: The texts start with no token.
    """
    source, mask, forced = search.source, search.mask, search.forced
    if search.kind == 0:
        if source.dim() != 2:
            raise ValueError(f"input_ids has {source.dim()} dims, not 2.")
        _with_tokens(source, "input_ids", ctx)
        return PromptDecoder(ctx, source, mask, pad=search.pad, beams=beams, capacity=search.limit)
    if search.kind not in _ENCODER_DECODERS:
        raise ValueError(f"model_type {search.kind} is none of 0, 1 and 2.")
    if forced is None:
        if search.first < 0:
            raise ValueError("an encoder and a decoder need decoder_start_token_id.")
        forced = torch.full((source.shape[0], 1), search.first, dtype=torch.int32, device=source.device)
    _with_tokens(forced, "decoder_input_ids", ctx)
    return SourceDecoder(ctx, source, mask, forced, pad=search.pad, beams=beams, capacity=search.limit)


def _with_tokens(start: Tensor, name: str, ctx: KernelContext) -> None:
    if start.shape[1] == 0:
        got = f"shape {list(start.shape)}"
        raise InputError(
            f"node {ctx.node.name!r} ({ctx.node.qualified}): {name} has {got}, but every text needs a token "
            "to start with",
            name=name,
            got=got,
            expected="one token or more",
        )
