"""Every op case, eager and replayed with other data: a capture changes nothing but the time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from opcase import OpCase
from test_ops import params

import torch_ort_session
from torch_ort_session import Options


def same(got: Any, want: Any) -> bool:
    if isinstance(want, torch.Tensor):
        if got.shape != want.shape or got.dtype != want.dtype:
            return False
        bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}.get(want.element_size())
        if bits is None or torch.equal(got.contiguous().view(bits), want.contiguous().view(bits)):
            return True
        return bool(torch.equal(got.isnan(), want.isnan()) and near(got.nan_to_num(), want.nan_to_num()))
    if isinstance(want, tuple):
        return len(got) == len(want) and all(same(a, b) for a, b in zip(got, want, strict=True))
    return want is None if got is None else bool(np.array_equal(got, want))


def near(got: torch.Tensor, want: torch.Tensor) -> bool:
    """Within 16 epsilons of the largest magnitude, where another call may have summed in another order."""
    if not want.is_floating_point() and not want.is_complex():
        return bool(torch.equal(got, want))
    wide = torch.complex128 if want.is_complex() else torch.float64
    scale = float(want.to(wide).abs().max()) if want.numel() else 0.0
    return bool((got.to(wide) - want.to(wide)).abs().max() <= 16 * torch.finfo(want.dtype).eps * scale)


@pytest.mark.parametrize(("case", "dtype", "opset"), params())
def test_a_replay_gives_what_the_eager_run_gives(case: OpCase, dtype: str, opset: int) -> None:
    model = case.model(dtype, opset)
    eager = torch_ort_session.load(model, options=Options(capture="off"))
    session = torch_ort_session.load(model)
    varies = any(node.op in ("Dropout", "Multinomial", "Bernoulli") for node in session.graph.nodes)
    varies = varies or any(node.op.startswith("Random") for node in session.graph.nodes)
    for draw in (0, 1, 2, 3, 1):
        feeds = case.feeds(dtype, draw)
        torch.manual_seed(draw)
        expected = eager.run(None, feeds)
        torch.manual_seed(draw)
        got = session.run(None, feeds)
        for ours, theirs in zip(got, expected, strict=True):
            assert same(ours, theirs), draw
    assert varies or session.stats().get("failed captures", 0) == 0
