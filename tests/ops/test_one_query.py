"""Attention of one query over many keys by the compiled op: in the ops that attend, beside float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from onnx import TensorProto, helper
from torch import Tensor

import torch_ort_session as tos
from torch_ort_session.ops import native
from torch_ort_session.ops.common.attention import fused

pytestmark = pytest.mark.skipif(not native.status().usable, reason=f"native ops: {native.status().reason}")


def made(seed: int, *shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def wanted(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float | None) -> Tensor:
    each = q.shape[1] // k.shape[1]
    keys, values = (part.double().repeat_interleave(each, 1) for part in (k, v))
    scores = q.double() @ keys.transpose(2, 3) * (scale or 1 / math.sqrt(q.shape[3]))
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype is torch.bool else scores + mask.double()
    return torch.softmax(scores, -1).nan_to_num(0.0) @ values


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("kind", ["none", "bools", "floats", "vector", "blind", "turned"])
def test_one_query_over_many_keys(kind: str, dtype: torch.dtype, asked: list[str]) -> None:
    q, scale = made(0, 2, 6, 1, 40, dtype=dtype), 0.3 if kind == "floats" else None
    k, v = made(1, 2, 3, 300, 40, dtype=dtype), made(2, 2, 3, 300, 40, dtype=dtype)
    if kind == "turned":
        k, v = (part.transpose(1, 2).contiguous().transpose(1, 2) for part in (k, v))
    masks: dict[str, Tensor] = {
        "bools": made(3, 2, 1, 1, 300, dtype=torch.float32) > 0,
        "floats": made(3, 1, 6, 1, 300, dtype=dtype),
        "vector": made(3, 300, dtype=torch.float32) > 0,
        "blind": torch.arange(300) < torch.tensor([0, 7]).reshape(2, 1, 1, 1),
    }
    mask = masks.get(kind)
    got = fused(q, k, v, mask, scale=scale)
    assert asked == ["gqa_decode"] and got.dtype is dtype
    bound = 2e-5 if dtype is torch.float32 else 3e-3
    assert float((got.double() - wanted(q, k, v, mask, scale)).abs().max()) < bound


def test_torch_does_what_it_does_as_well(asked: list[str]) -> None:
    for dtype, heads, length in ((torch.float32, 3, 1), (torch.float32, 6, 2), (torch.bfloat16, 6, 1)):
        q = made(0, 1, heads, length, 40, dtype=dtype)
        k, v = (made(seed, 1, 3, 300, 40, dtype=dtype) for seed in (1, 2))
        fused(q, k, v, None)
    short = made(0, 1, 3, 4, 40, dtype=torch.float16)
    fused(made(0, 1, 6, 1, 40, dtype=torch.float16), short, short, None)
    long = made(0, 1, 3, 300, 40, dtype=torch.float16)
    fused(made(0, 1, 6, 1, 40, dtype=torch.float16), long, long, None, causal=True)
    fused(made(0, 1, 6, 1, 40, dtype=torch.float16).requires_grad_(), long, long, None)
    assert asked == []


@pytest.mark.parametrize("capture", ["off", "auto"])
def test_attention_of_onnx_with_a_cache(capture: Any, asked: list[str]) -> None:
    names = ["q", "k", "v", "mask", "past_k", "past_v"]
    node = helper.make_node("Attention", names, ["y", "present_k", "present_v"])
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, None) for name in names]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, None) for name in node.output]
    graph = helper.make_graph([node], "g", infos, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    session = tos.load(model, options=tos.Options(capture=capture))
    for seed in range(5):
        half = torch.float16
        feed = {"q": made(seed, 1, 8, 1, 64, dtype=half), "mask": made(7 + seed, 1, 400, dtype=half)}
        feed |= {name: made(8 + seed, 1, 2, 1, 64, dtype=half) for name in ("k", "v")}
        feed |= {name: made(9 + seed, 1, 2, 399, 64, dtype=half) for name in ("past_k", "past_v")}
        y, key, value = session.run(None, feed)
        assert torch.equal(key, torch.cat((feed["past_k"], feed["k"]), 2))
        want = wanted(feed["q"], key, value, feed["mask"], None)
        assert float((y.double() - want).abs().max()) < 3e-3
    assert "gqa_decode" in asked
    assert session.stats()["replays"] == (2 if capture == "auto" else 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_features_may_lie_in_any_order(dtype: torch.dtype) -> None:
    q, k, v = (made(i, 2, 6 if i == 0 else 3, 1 if i == 0 else 300, 40, dtype=dtype) for i in range(3))
    want = wanted(q, k, v, None, None)
    for a, b in ((0, 3), (1, 3), (2, 3)):
        turned = tuple(part.transpose(a, b).contiguous().transpose(a, b) for part in (q, k, v))
        for given in ((turned[0], k, v), (q, turned[1], v), (q, k, turned[2])):
            got = fused(*given, None)
            assert float((got.double() - want).abs().max()) < (2e-5 if dtype is torch.float32 else 3e-3)


def test_no_sample_has_no_result() -> None:
    k = torch.zeros(0, 3, 300, 40, dtype=torch.float16)
    assert fused(torch.zeros(0, 6, 1, 40, dtype=torch.float16), k, k, None).shape == (0, 6, 1, 40)
