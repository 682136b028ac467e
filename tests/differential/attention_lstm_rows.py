"""Generators of com.microsoft's AttnLSTM."""

from __future__ import annotations

from cases.microsoft_recurrent_attention import attn_lstm
from opcase import OpCase

from differential.images_and_arranging import one_of
from differential.single import Generator, Row


def recurrent(rng: Generator) -> OpCase:
    return attn_lstm(
        one_of(rng, "forward", "reverse", "bidirectional"),
        depth=int(rng.integers(1, 6)),
        lengths=one_of(rng, None, rng.integers(1, 5, 2)),
        memory_lengths=one_of(rng, None, rng.integers(1, 8, 2)),
        bias=rng.random() < 0.5,
        layer=rng.random() < 0.6,
    )


ROWS: dict[str, Row] = {"AttnLSTM": Row(recurrent, trials=20)}
