"""`benchmarks/cached_decode.py`: what it runs agrees, and what it judges."""

from __future__ import annotations

from typing import Any

import cached_decode
import numpy as np
import pytest
import torch

import torch_ort_session as tos
from torch_ort_session.ops import native

pytest.importorskip("onnxruntime", reason="the oracle of this benchmark")


@pytest.mark.skipif(not native.status().usable, reason=f"native ops: {native.status().reason}")
@pytest.mark.parametrize("hidden", [False, True])
def test_all_three_give_the_same_and_ours_writes_rows_alone(hidden: bool) -> None:
    llama = cached_decode.Llama(40, hidden=hidden)
    model, arrays = llama.proto(), llama.arrays()
    assert tos.load(model).graph.nodes
    ours, found = cached_decode.bound(model, arrays)
    with cached_decode.copying():
        plain, copied = cached_decode.bound(model, arrays)
    other, wanted = cached_decode.theirs(model, arrays, 1)
    for run in (ours, plain, other):
        run()
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(found, copied, rtol=1e-3, atol=1e-4)


def test_what_misses_its_bound_is_named() -> None:
    row: dict[str, Any] = {
        "model": "llama",
        "room": 256,
        "threads": 1,
        "microseconds": {"ours": 1.0, "copying": 2.0, "onnxruntime": 1.5},
        "over": {"copying": 0.5, "onnxruntime": 0.7},
        "spread": 0.1,
        "error": 1e-6,
        "rounds": 9,
    }
    assert cached_decode.judge([row]) == []
    bad = row | {"over": {"copying": 1.25, "onnxruntime": 0.7}, "error": float("nan")}
    assert cached_decode.judge([bad]) == [
        "llama, 256 rows, 1 thread(s): 1.25 x copying the caches",
        "llama, 256 rows, 1 thread(s): error nan above 1e-04",
    ]
    assert "0.70x" in cached_decode.text_of([row])
