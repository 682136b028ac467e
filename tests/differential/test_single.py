"""Single ops of com.microsoft with random attributes, shapes and optional inputs beside their oracles."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from differential import (
    attention_rows,
    gates_and_integers,
    images_and_arranging,
    mixtures,
    quantized_tensors,
    quantized_weights,
    sequence_rows,
)
from differential.single import Row, check_row

ROWS: dict[str, Row] = {
    **attention_rows.ROWS,
    **sequence_rows.ROWS,
    **quantized_weights.ROWS,
    **quantized_tensors.ROWS,
    **mixtures.ROWS,
    **images_and_arranging.ROWS,
    **gates_and_integers.ROWS,
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", ROWS)
def test_cases_agree(name: str) -> None:
    row = ROWS[name]
    found = check_row(name, row)
    assert found["cases"] == row.trials * len(row.dtypes)
    # Four draws a case: eager, observed, recorded, and replayed.
    assert found["replays"] == 0 if row.seam else found["replays"] >= found["cases"]
