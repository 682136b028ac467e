"""Places that do not exist, in the inputs of com.microsoft's attention ops: an error, never another row."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from cases import (
    microsoft_decoder,
    microsoft_decoder_masked,
    microsoft_packing,
    microsoft_paged,
    microsoft_sparse,
)
from opcase import OpCase

import torch_ort_session as tos


def case_of(family: Any, op: str, id: str | None = None) -> OpCase:
    return next(case for case in family.CASES if case.op == op and (id is None or case.id == id))


BEYOND = np.full((2, 2, 8), 2)
FAULTS = [
    (case_of(microsoft_decoder_masked, "DecoderMaskedMultiHeadAttention"), "x7", [8]),
    (
        case_of(microsoft_decoder_masked, "DecoderMaskedMultiHeadAttention", "beams"),
        "x9",
        np.full((2, 2, 8), 2),
    ),
    (case_of(microsoft_packing, "RestorePadding"), "x1", [[0, 3, 6], [5, 1, 2]]),
    (case_of(microsoft_packing, "PackedAttention"), "x3", [[0, 3, 6], [5, 1, 2]]),
    (case_of(microsoft_packing, "NGramRepeatBlock", "tokens"), "x0", np.full((3, 12), 5)),
    (case_of(microsoft_sparse, "SparseAttention", "decode"), "x8", [49, 34]),
    (case_of(microsoft_paged, "PagedAttention", "later"), "x7", [[7, 1], [0, 2], [3, 4]]),
    (case_of(microsoft_paged, "PagedAttention", "later"), "x6", [8, 2, 3]),
    (case_of(microsoft_paged, "PagedAttention", "slots"), "x10", [25, -1, 13]),
]


@pytest.mark.parametrize(("case", "name", "bad"), FAULTS, ids=lambda item: getattr(item, "op", None))
def test_a_place_that_does_not_exist_is_an_error(case: OpCase, name: str, bad: Any) -> None:
    dtype, opset = case.variants()[0]
    session = tos.load(case.model(dtype, opset))
    feeds = [case.feeds(dtype, draw) for draw in range(3)]
    wrong = {**feeds[0], name: np.asarray(bad, feeds[0][name].dtype)}
    with pytest.raises(tos.DeviceIndexError):
        session.run(None, wrong)
    # Good data before and after, a replay among them, is not blamed.
    for feed in feeds:
        session.run(None, feed)
    with pytest.raises(tos.DeviceIndexError):
        session.run(None, wrong)


NORMED = case_of(microsoft_decoder, "GroupQueryAttention", "normed")
REFUSED = [
    (
        case_of(microsoft_paged, "PagedAttention"),
        {"kv_cache_layout": "LATENT"},
        "another layout than SEPARATE",
    ),
    (case_of(microsoft_paged, "PagedAttention"), {"do_rotary": 1}, "do_rotary needs cos_cache"),
    (case_of(microsoft_sparse, "SparseAttention"), {"do_rotary": 1}, "do_rotary needs cos_cache"),
    (case_of(microsoft_packing, "NGramRepeatBlock"), {"ngram_size": 0}, "is not positive"),
    (case_of(microsoft_packing, "PackedAttention"), {"num_heads": 3}, "does not divide into 3 heads"),
    (
        dataclasses.replace(NORMED, inputs=[*NORMED.inputs[:-1], None]),
        {},
        "q_norm_weight and k_norm_weight go together",
    ),
]


@pytest.mark.parametrize(("case", "attrs", "message"), REFUSED, ids=lambda item: getattr(item, "op", None))
def test_what_is_not_served_is_refused(case: OpCase, attrs: dict[str, Any], message: str) -> None:
    changed = OpCase(case.op, case.inputs, {**case.attrs, **attrs}, domain=case.domain, outputs=case.outputs)
    dtype, opset = changed.variants()[0]
    session = tos.load(changed.model(dtype, opset))
    with pytest.raises(tos.KernelError, match=message):
        session.run(None, changed.feeds(dtype, 0))
