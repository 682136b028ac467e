"""Single ops of com.microsoft with random attributes, shapes and optional inputs beside their oracles."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from differential import (
    attention_lstm_rows,
    attention_rows,
    choice_rows,
    gates_and_integers,
    images_and_arranging,
    mixtures,
    nbits_rows,
    order_rows,
    qlinear_rows,
    quantized_tensors,
    quantized_weights,
    sequence_rows,
    state_rows,
    stream_rows,
    transformer_rows,
    word_rows,
)
from differential.known import KNOWN
from differential.single import FEW, Row, cases_of, check_row
from differential.tallied import Compared
from torch_ort_session.ops import contrib, registry

ROWS: dict[str, Row] = {
    **attention_rows.ROWS,
    **sequence_rows.ROWS,
    **quantized_weights.ROWS,
    **quantized_tensors.ROWS,
    **mixtures.ROWS,
    **images_and_arranging.ROWS,
    **gates_and_integers.ROWS,
    **transformer_rows.ROWS,
    **qlinear_rows.ROWS,
    **state_rows.ROWS,
    **stream_rows.ROWS,
    **word_rows.ROWS,
    **choice_rows.ROWS,
    **order_rows.ROWS,
    **nbits_rows.ROWS,
    **attention_lstm_rows.ROWS,
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", ROWS)
def test_cases_agree(name: str, compared: Compared, all_drawn: bool) -> None:
    row = ROWS[name]
    most = row.trials if all_drawn else min(FEW, row.trials)
    found = check_row(name, row, compared, most)
    assert found["cases"] == most * len(row.dtypes)
    # Four draws a case: eager, observed, recorded, and replayed.
    assert found["replays"] == 0 if row.seam else found["replays"] >= found["cases"]


# Compared in tests of their own: in part, or with a decoder as a graph of the node.
APART = {"BeamSearch", "GreedySearch", "GroupQueryAttention", "Sampling", "WhisperBeamSearch"}


def test_what_is_wrong_in_part_is_compared_in_the_rest() -> None:
    parts = {op for known in KNOWN if known.part for op in known.ops}
    assert parts - set(ROWS) == APART - {"GroupQueryAttention"}


def test_kernels_of_com_microsoft_have_rows() -> None:
    covered = {case.op for name, row in ROWS.items() for _, case in cases_of(name, row)}
    kernels = {op for domain, op in registry.kernels() if domain == contrib.DOMAIN}
    assert kernels - covered <= APART
    assert len(kernels & covered) >= 80
