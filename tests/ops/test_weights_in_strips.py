"""MatMulNBits on a CPU never holds the whole of a large weight in floats."""

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
    """The most elements that a float tensor has which some call makes."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.is_floating_point():
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
        with Largest() as largest:
            (y,) = session.run(None, feeds)
        expected = product(feeds["x0"], *(feeds[f"x{i}"] for i in (1, 2, 3)), None, feeds["x5"], **case.attrs)
        np.testing.assert_allclose(y.numpy(), expected, rtol=1e-4, atol=1e-3 * np.abs(expected).max())
        assert largest.elements < K * N / 2
