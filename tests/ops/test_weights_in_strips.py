"""Quantized weights are never unpacked as a whole where a part is enough."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from differential.quantized_weights import product
from onnx import helper
from opcase import OpCase, t
from torch.utils._python_dispatch import TorchDispatchMode

import torch_ort_session as tos
from torch_ort_session.ops.microsoft import block_quantized

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


def four_bits(transposed: int, rows: int, columns: int, block: int) -> tuple[tos.Session, dict[str, Any]]:
    """MatMulBnb4 with a weight [rows, columns], and its feed."""
    rng = np.random.default_rng(rows * columns)
    count = rows * columns
    given = {
        "a": rng.standard_normal((3, columns if transposed else rows)).astype(np.float32),
        "b": rng.integers(0, 256, -(-count // 2)).astype(np.uint8),
        "scales": rng.uniform(0.1, 1.0, -(-count // block)).astype(np.float32),
    }
    node = helper.make_node(
        "MatMulBnb4",
        list(given),
        ["y"],
        domain="com.microsoft",
        K=columns,
        N=rows,
        block_size=block,
        quant_type=1,
        transB=transposed,
    )
    ports = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in given.items()
    ]
    graph = helper.make_graph([node], "g", ports, [helper.make_empty_tensor_value_info("y")])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return tos.load(model, options=tos.Options(capture="off")), given


@pytest.mark.parametrize("transposed", [0, 1])
def test_a_weight_of_levels_is_unpacked_in_strips(transposed: int) -> None:
    session, feed = four_bits(transposed, N, K, 64)
    with Largest(torch.float32) as largest, Largest(torch.int32) as whole:
        session.run(None, feed)
    assert 0 < largest.elements < N * K / 3
    assert 0 < whole.elements < N * K / 3


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize(("rows", "columns", "block"), [(37, 33, 16), (40, 64, 32), (9, 20, 64), (6, 7, 16)])
def test_strips_of_levels_are_the_whole(
    monkeypatch: pytest.MonkeyPatch, transposed: int, rows: int, columns: int, block: int
) -> None:
    session, feed = four_bits(transposed, rows, columns, block)
    (whole,) = session.run(None, feed)
    monkeypatch.setattr(block_quantized, "_STRIP", 1)
    with Largest(torch.float32) as largest:
        (parts,) = four_bits(transposed, rows, columns, block)[0].run(None, feed)
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-5)
    assert largest.elements < rows * columns or rows * columns < 16 * block
