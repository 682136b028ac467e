"""The native TopK on what its kernel never gives it."""

from __future__ import annotations

import pytest
import torch

from torch_ort_session.ops import native

pytestmark = pytest.mark.skipif(not native.status().usable, reason=f"native ops: {native.status().reason}")


@pytest.mark.parametrize("largest", [True, False])
def test_an_axis_of_one_entry_may_have_any_stride(largest: bool) -> None:
    assert native.load()
    row = torch.tensor([3.0, 1.0]).reshape(2, 1).as_strided((2, 1), (1, 0))
    picked = torch.ops.torch_ort_session.top_k.default(row, 1, 1, largest)
    assert picked.tolist() == [[0], [0]]
