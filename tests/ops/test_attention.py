"""Attention where no oracle says all: bodies, rows without keys under autograd, and what users read."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from expecttest import assert_expected_inline
from onnx import helper

import torch_ort_session
from torch_ort_session.errors import KernelError
from torch_ort_session.ops.common.attention import fused, masked_scores, scores, softmax, weighted


def model(op: str, inputs: dict[str, list[int]], opset: int, **attributes: Any) -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in inputs.items()]
    domain = attributes.pop("domain", "")
    node = helper.make_node(op, list(inputs), ["y"], name="case", domain=domain, **attributes)
    graph = helper.make_graph([node], "case", infos, [onnx.ValueInfoProto(name="y")])
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=11)


def body(name: str, op: str, **attributes: Any) -> onnx.GraphProto:
    info = helper.make_tensor_value_info
    shape = ["B", "H", "L", "S"]
    return helper.make_graph(
        [helper.make_node(op, ["v"], ["w"], **attributes)],
        name,
        [info("v", onnx.TensorProto.FLOAT, shape)],
        [info("w", onnx.TensorProto.FLOAT, shape)],
    )


def test_bodies_change_scores_and_probabilities() -> None:
    shapes = {"q": [1, 2, 3, 4], "k": [1, 1, 5, 4], "v": [1, 1, 5, 6]}
    session = torch_ort_session.load(
        model(
            "FlexAttention",
            shapes,
            24,
            domain="ai.onnx.preview",
            score_mod=body("score", "Tanh"),
            prob_mod=body("prob", "Sqrt"),
        )
    )
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(s, generator=generator, dtype=torch.float32) for s in shapes.values())
    got = session(q, k, v)
    want = torch.softmax(torch.tanh(q @ k.mT / 2), -1).sqrt() @ v
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("additive", [False, True])
def test_a_query_without_keys_gives_zeros_and_zero_gradients(additive: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 3, 4, generator=generator, requires_grad=True) for _ in range(3))
    seen = torch.tensor([[True, False, True], [False, False, False], [True, True, True]])
    mask = torch.zeros(3, 3).masked_fill(~seen, -np.inf) if additive else seen
    spelled = weighted(softmax(masked_scores(scores(q, k, 0.5), mask), mask), v)
    for y in (fused(q, k, v, mask, scale=0.5), spelled):
        assert y[0, :, 1].eq(0).all()
        for gradient in torch.autograd.grad(y.square().sum(), (q, k, v), retain_graph=True):
            assert gradient.isfinite().all()
        (of_queries,) = torch.autograd.grad(y.square().sum(), (q,), retain_graph=True)
        assert of_queries[0, :, 1].eq(0).all()


def test_scores_without_an_end_do_not_reach_a_query_without_keys() -> None:
    q, v = torch.ones(1, 1, 2, 4), torch.ones(1, 1, 2, 4)
    k = torch.tensor([[1.0] * 4, [np.inf] * 4]).reshape(1, 1, 2, 4)
    seen = torch.tensor([[True, True], [False, False]])
    assert fused(q, k, v, seen)[0, 0, 1].tolist() == [0.0] * 4


def test_heads_that_do_not_divide() -> None:
    session = torch_ort_session.load(
        model(
            "Attention", {"q": [1, 3, 10], "k": [1, 3, 8], "v": [1, 3, 8]}, 24, q_num_heads=4, kv_num_heads=4
        )
    )
    with pytest.raises(KernelError) as caught:
        session(torch.zeros(1, 3, 10), torch.zeros(1, 3, 8), torch.zeros(1, 3, 8))
    assert_expected_inline(
        str(caught.value),
        """\
node 'case' (ai.onnx::Attention) failed: A hidden size of 10 does not divide into 4 heads.
  inputs: q: float32[1, 3, 10] cpu; k: float32[1, 3, 8] cpu; v: float32[1, 3, 8] cpu""",
    )
