"""What kernels of com.microsoft say of inputs that fit no meaning, and of indices outside of a table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import microsoft_quantized, microsoft_weights
from opcase import OpCase, const

import torch_ort_session as tos


def named(op: str, id: str | None = None) -> OpCase:
    cases = (*microsoft_quantized.CASES, *microsoft_weights.CASES)
    return next(case for case in cases if case.op == op and case.id == id)


@pytest.mark.parametrize("place", [0, 1])
def test_m11_words_outside_of_a_table_are_reported(place: int) -> None:
    case = named("QEmbedLayerNormalization")
    session = tos.load(case.model("float32", 1))
    for draw in (0, 1, 2):
        feeds = case.feeds("float32", draw)
        session.run(None, feeds)
        feeds[f"x{place}"][0, 1] = 9 + place
        with pytest.raises(tos.SessionError, match="index"):
            session.run(None, feeds)


def test_m11_a_block_outside_of_a_row_is_reported() -> None:
    order = const(np.arange(32) // 16, "int32")
    rows: list[Any] = [
        const(np.ones((2, 32))),
        const(np.ones((3, 2, 8)), "uint8"),
        const(np.ones((3, 2))),
        None,
        order,
    ]
    case = OpCase("MatMulNBits", rows, {"K": 32, "N": 3, "block_size": 16}, domain="com.microsoft")
    session = tos.load(case.model("float32", 1))
    for _ in range(3):
        feeds = case.feeds("float32", 0)
        session.run(None, feeds)
        feeds["x4"] = feeds["x4"] + 1
        with pytest.raises(tos.SessionError, match="index"):
            session.run(None, feeds)


@pytest.mark.parametrize(
    ("place", "fed", "message"),
    [
        (2, np.ones((3, 4)), "scales of shape \\[3, 4\\] are not 6 elements, 2 for each row of W"),
        (3, np.ones((6, 1)), "zero_points of shape \\[6, 1\\] are not 3 elements, 1 for each row of W"),
        (5, np.ones(1), "bias of shape \\[1\\] are not 3 elements, 1 for each row of W"),
    ],
)
def test_m11_sizes_that_do_not_fit_a_weight_of_a_few_bits_are_refused(
    place: int, fed: Any, message: str
) -> None:
    rows: list[Any] = [
        const(np.ones((2, 32))),
        const(np.ones((3, 2, 8)), "uint8"),
        const(np.ones((3, 2))),
        const(np.ones((3, 1)), "uint8"),
        None,
        const(np.ones(3)),
    ]
    rows[place] = const(fed, "uint8" if place == 3 else None)
    case = OpCase("MatMulNBits", rows, {"K": 32, "N": 3, "block_size": 16}, domain="com.microsoft")
    with pytest.raises(tos.SessionError, match=message):
        tos.load(case.model("float32", 1)).run(None, case.feeds("float32", 0))


def test_a_path_needs_elements() -> None:
    case = OpCase("DynamicTimeWarping", [const(np.ones((0, 3)))], domain="com.microsoft")
    with pytest.raises(tos.SessionError, match="with elements is needed, not \\[0, 3\\]"):
        tos.load(case.model("float32", 1)).run(None, case.feeds("float32", 0))


def test_windows_are_no_longer_than_the_axis() -> None:
    case = OpCase("UnfoldTensor", [const(np.ones((2, 3)))], {"size": 4}, domain="com.microsoft")
    with pytest.raises(tos.SessionError, match="windows of 4 elements by steps of 1 do not fit an axis of 3"):
        tos.load(case.model("float32", 1)).run(None, case.feeds("float32", 0))


def test_infinite_costs_still_give_a_path() -> None:
    cost = np.full((3, 4), np.inf)
    case = OpCase("DynamicTimeWarping", [const(cost)], domain="com.microsoft")
    (path,) = tos.load(case.model("float32", 1)).run(None, case.feeds("float32", 0))
    assert path[:, 0].tolist() == [0, 0] and path[:, -1].tolist() == [2, 3]


def mixture(op: str, attrs: dict[str, Any], *rest: Any) -> OpCase:
    tokens: list[Any] = [const(np.ones((2, 4))), const(np.ones((2, 3))), *rest]
    return OpCase(op, tokens, attrs, domain="com.microsoft")


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"activation_type": "swiglu"}, "needs the weights of a third projection"),
        ({"activation_type": "tanh"}, "activation_type 'tanh' with swiglu_fusion 0 is not known"),
        ({"use_sparse_mixer": 1, "k": 3}, "a sparse mixer chooses 2 experts, not 3"),
    ],
)
def test_mixtures_refuse_what_has_no_meaning(attrs: dict[str, Any], message: str) -> None:
    case = mixture("MoE", attrs, const(np.ones((3, 4, 4))), None, const(np.ones((3, 4, 4))))
    with pytest.raises(tos.SessionError, match=message):
        tos.load(case.model("float32", 1)).run(None, case.feeds("float32", 0))


@pytest.mark.parametrize("attrs", [{"quant_type": "nvfp4"}, {"weights_prepacked": 1}])
def test_layouts_of_one_device_are_refused(attrs: dict[str, Any]) -> None:
    weights, scales = const(np.ones((3, 4, 2)), "uint8"), const(np.ones((3, 4)))
    case = mixture("QMoE", attrs, weights, scales, None, weights, scales)
    with pytest.raises(tos.SessionError, match="int and fp8 weights in the plain layout are"):
        tos.load(case.model("float32", 1)).run(None, case.feeds("float32", 0))


def test_what_an_expert_makes_of_others_tokens_does_not_matter() -> None:
    """An expert that overflows takes nothing from tokens that it does not get."""
    first = np.ones((3, 4, 4))
    first[2] = np.inf
    scores = np.array([[3.0, 0.0, -3.0]] * 9)
    case = OpCase(
        "MoE",
        [const(np.ones((9, 4))), const(scores), const(first), None, const(np.ones((3, 4, 4)))],
        {"normalize_routing_weights": 1},
        domain="com.microsoft",
    )
    (y,) = tos.load(case.model("float32", 1)).run(None, case.feeds("float32", 0))
    assert y.tolist() == [[16.0] * 4] * 9


def test_of_experts_that_score_alike_the_first_are_chosen() -> None:
    """As TopK of ai.onnx has it; onnxruntime's MoE chooses the last ones."""
    bias = np.arange(40.0)[:, None] * np.ones(4)
    case = OpCase(
        "MoE",
        [
            const(np.ones((3, 4))),
            const(np.ones((3, 40))),
            const(np.zeros((40, 4, 4))),
            None,
            const(np.zeros((40, 4, 4))),
            const(bias),
        ],
        {"k": 3, "normalize_routing_weights": 1},
        domain="com.microsoft",
    )
    (y,) = tos.load(case.model("float32", 1)).run(None, case.feeds("float32", 0))
    np.testing.assert_allclose(y, np.ones((3, 4)), rtol=1e-6)


def test_packed_numbers_are_not_gathered_along_their_axis() -> None:
    data: list[Any] = [const(np.ones((2, 16)), "uint8"), const([0], "int64"), const(np.ones((1, 32)))]
    attrs = {"gather_axis": 1, "quantize_axis": 0, "block_size": 16}
    case = OpCase("GatherBlockQuantized", data, attrs, domain="com.microsoft")
    with pytest.raises(tos.SessionError, match="packed along an axis cannot be gathered along it"):
        tos.load(case.model("float32", 1)).run(None, case.feeds("float32", 0))
