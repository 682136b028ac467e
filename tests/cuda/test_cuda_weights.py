"""Products with weights that are read once, on each device: captured and eager, beside the CPU's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cases import microsoft_decoder, microsoft_mixture
from opcase import OpCase
from runtime.capturelab import cpu_recorder, injected
from textmodel import model

import torch_ort_session as tos

devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
ROUNDING = {"float16": 2e-3, "bfloat16": 1e-2, "float32": 1e-4}
PRODUCTS = {"MatMul": "MatMul (x, w)", "Gemm": "Gemm <transB = 1> (x, w, b)"}
PACKED = [
    pytest.param(case, dtype, opset, id=f"{case.op}-{case.id or ''}-{dtype}")
    for case in (*microsoft_decoder.CASES, *microsoft_mixture.CASES)
    if case.op in {"MatMulNBits", "MoE", "QMoE"}
    for dtype, opset in case.variants()
]


def error(got: torch.Tensor, wanted: torch.Tensor) -> float:
    """Of the largest magnitude."""
    return float((got.cpu().double() - wanted.double()).abs().max() / (wanted.abs().max() + 1e-3))


@devices
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("op", list(PRODUCTS))
def test_a_row_times_a_large_weight_is_replayed(device: str, kind: str, op: str) -> None:
    text = (
        f"g ({kind}[1,k] x, {kind}[a,c] w, {kind}[n] b) => ({kind}[1,n] y)"
        f" {{ p = {PRODUCTS[op]} q = Neg(p) r = Abs(q) s = Neg(r) u = Abs(s) y = Neg(u) }}"
    )
    session = tos.load(model(text), device=device)
    if device == "cpu":
        session = injected(session, cpu_recorder)
    dtype = getattr(torch, kind)
    for draw in range(5):
        torch.manual_seed(draw)
        x, w, b = (torch.randn(s).to(dtype) for s in ((1, 2048), (2048, 1024), (1024,)))
        wanted = x.double() @ w.double()
        if op == "Gemm":
            w, wanted = w.t().contiguous(), wanted + b.double()
        (y,) = session.run(None, {"x": x, "w": w, "b": b})
        assert error(y, -wanted.abs()) < ROUNDING[kind]
    assert session.stats()["replays"] > 0


@devices
@pytest.mark.parametrize(("case", "dtype", "opset"), PACKED)
def test_packed_weights_give_what_they_give_on_the_cpu(
    device: str, case: OpCase, dtype: str, opset: int
) -> None:
    proto = case.model(dtype, opset)
    session = tos.load(proto, device=device)
    plain = tos.load(proto, device="cpu", options=tos.Options(capture="off"))
    for draw in range(4):
        feeds: dict[str, Any] = case.feeds(dtype, draw)
        for got, wanted in zip(session.run(None, feeds), plain.run(None, feeds), strict=True):
            assert got.device.type == device
            assert error(got, wanted) < ROUNDING.get(dtype, 1e-6)
