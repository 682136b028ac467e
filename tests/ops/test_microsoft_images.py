"""com.microsoft's ops on images and arrangements: sizes from constants, bad data, and what users read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from expecttest import TestCase
from onnx import numpy_helper
from opcase import OpCase, assert_matches, const, t

import torch_ort_session as tos
from torch_ort_session.ops.microsoft import arrange, bias, group_norm, images, matrices
from torch_ort_session.ops.microsoft.generation import decoding


def whole(*numbers: int, dtype: str = "int64") -> Any:
    return const(list(numbers), dtype)


SIZED = {
    "crop": ("CropAndResize", [t(2, 3, 5, 7), t(4, 4, low=0, high=1), whole(0, 1, 1, 0, dtype="int32"),
                               whole(3, 4, dtype="int32")], {}, 3),
    "transposed": ("ConvTransposeWithDynamicPads", [t(2, 4, 5, 3), t(4, 3, 3, 3), whole(1, 0, 1, 2)], {}, 2),
    "pad": ("Pad", [t(3, 4), whole(0, 1, 1, -1)], {}, 1),
    "reflect": ("Pad", [t(3, 4), const([[0, 1, 1, 2]], "int64")], {"mode": "reflect"}, 1),
    "triangle": ("Trilu", [t(3, 4), const(1, "int64")], {}, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", SIZED)
def test_with_a_constant_size_it_is_captured(name: str) -> None:
    op, inputs, attrs, place = SIZED[name]
    case = OpCase(op, inputs, attrs, domain="com.microsoft", oracle="onnxruntime")
    model = case.model("float32", 1)
    constant = f"x{place}"
    kept = [info for info in model.graph.input if info.name != constant]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.append(numpy_helper.from_array(case.feeds("float32", 0)[constant], constant))
    session = tos.load(model)
    for draw in range(4):
        feeds = case.feeds("float32", draw)
        wanted = case.expected("float32", 1, feeds)
        del feeds[constant]
        assert_matches(session.run(None, feeds)[0], wanted[0])
    assert session.stats()["replays"] > 0


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        ("CropAndResize", [t(2, 3, 5, 7), t(2, 4), whole(0, 2, dtype="int32"), whole(3, 4, dtype="int32")]),
        ("GatherND", [t(3, 4), const([[0, 1], [3, 0]], "int32")]),
    ],
)
def test_a_bad_index_is_refused(op: str, inputs: list[Any]) -> None:
    case = OpCase(op, inputs, domain="com.microsoft")
    session = tos.load(case.model("float32", 1))
    with pytest.raises(tos.DeviceIndexError):
        session.run(None, case.feeds("float32", 0))


def test_bias_dropout_drops_a_share_and_keeps_the_residual() -> None:
    inputs = [t(64, 64, low=1, high=2), t(64), t(64, 64), const(0.25), const(True, "bool")]
    case = OpCase("BiasDropout", inputs, {"seed": 7}, domain="com.microsoft", outputs=2)
    session = tos.load(case.model("float32", 1))
    feeds = case.feeds("float32", 0)
    y, mask = session.run(None, feeds)
    kept = mask.numpy()
    assert 0.7 < kept.mean() < 0.8
    wanted = np.where(kept, (feeds["x0"] + feeds["x1"]) / 0.75, 0) + feeds["x2"]
    np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-5, atol=1e-6)
    again = session.run(None, feeds)[1]
    assert torch.equal(again, mask)


def said(call: Callable[[], object]) -> str:
    with pytest.raises(ValueError) as caught:
        call()
    return str(caught.value)


class TestMessages(TestCase):
    x = torch.zeros(2, 3, 4, 6)

    def test_bias_split_gelu(self) -> None:
        self.assertExpectedInline(
            said(lambda: bias.bias_split_gelu(torch.zeros(1, 2, 3), torch.zeros(3))),
            """BiasSplitGelu halves the last dim of X, which is 3.""",
        )

    def test_group_norm(self) -> None:
        one = torch.ones(6)
        self.assertExpectedInline(
            said(lambda: group_norm.group_norm(self.x, one, one, activation=0, groups=4)),
            """6 channels do not fall into 4 groups of one size.""",
        )
        self.assertExpectedInline(
            said(lambda: group_norm.group_norm(self.x, one, one, activation=2, groups=3)),
            """activation is 0 for none or 1 for SiLU, not 2.""",
        )

    def test_cdist(self) -> None:
        self.assertExpectedInline(
            said(lambda: matrices.cdist(torch.zeros(1, 2), torch.zeros(1, 2), metric="cosine")),
            """metric must be one of sqeuclidean, euclidean, cityblock, chebyshev, not 'cosine'.""",
        )

    def test_transforms(self) -> None:
        self.assertExpectedInline(
            said(lambda: matrices.rfft(self.x, normalized=1)),
            """normalized is 0 and onesided 1 in this transform, not 1 and 1.""",
        )
        self.assertExpectedInline(
            said(lambda: matrices.rfft(self.x, signal_ndim=5)), """signal_ndim is 5, but there are 4 dims."""
        )

    def test_expand_dims(self) -> None:
        self.assertExpectedInline(
            said(lambda: arrange.expand_dims(self.x, 5)), """axis 5 lies outside of [-5, 4]."""
        )

    def test_masked_pool(self) -> None:
        mask = torch.ones(1, 1, 4, 5)
        self.assertExpectedInline(
            said(lambda: images.max_pool_with_mask(self.x, mask, kernel_shape=[2, 2])),
            """a mask [1, 1, 4, 5] and kernel_shape [2, 2] do not fit an input [2, 3, 4, 6].""",
        )

    def test_bifurcation(self) -> None:
        tokens = torch.arange(3)
        start = torch.zeros(1, dtype=torch.int64)
        self.assertExpectedInline(
            said(lambda: decoding.bifurcation_detector(tokens, tokens, start, tokens)),
            """3 predicted tokens do not follow from place 0 of 3 tokens.""",
        )
