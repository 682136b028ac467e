"""Quantized weights are never unpacked as a whole where a part is enough."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from differential.quantized_weights import product
from opcase import OpCase, t
from torch.utils._python_dispatch import TorchDispatchMode

import torch_ort_session as tos

K, N = 1024, 1100


class Largest(TorchDispatchMode):
    """The most elements that a tensor of some dtype has which some call makes."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.dtype is self.dtype:
            self.elements = max(self.elements, result.numel())
        return result


def test_a_weight_is_unpacked_in_strips() -> None:
    weight = t(N, K // 32, 16, low=0, high=256, dtype="uint8")
    zeros = t(N, K // 64, low=0, high=256, dtype="uint8")
    case = OpCase(
        "MatMulNBits",
        [t(3, K), weight, t(N, K // 32, low=0.01), zeros, None, t(N)],
        {"K": K, "N": N, "bits": 4, "block_size": 32},
        domain="com.microsoft",
    )
    session = tos.load(case.model("float32", 1))
    for draw in range(3):
        feeds = case.feeds("float32", draw)
        with Largest(torch.float32) as largest:
            (y,) = session.run(None, feeds)
        expected = product(feeds["x0"], *(feeds[f"x{i}"] for i in (1, 2, 3)), None, feeds["x5"], **case.attrs)
        np.testing.assert_allclose(y.numpy(), expected, rtol=1e-4, atol=1e-3 * np.abs(expected).max())
        assert largest.elements < K * N / 2


def test_only_the_rows_that_are_gathered_are_unpacked() -> None:
    case = OpCase(
        "GatherBlockQuantized",
        [
            t(900, 32, low=0, high=256, dtype="uint8"),
            t(2, 3, low=-900, high=900, dtype="int64"),
            t(900, 4),
            t(900, 2, low=0, high=256, dtype="uint8"),
        ],
        {"block_size": 16},
        domain="com.microsoft",
    )
    session = tos.load(case.model("float32", 1))
    with Largest(torch.uint8) as largest:
        session.run(None, case.feeds("float32", 0))
    # The table itself is passed on as it came.
    assert largest.elements <= 900 * 32
