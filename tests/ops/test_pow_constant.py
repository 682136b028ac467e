"""Pow with exponents that are constants of the model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from onnx import helper, numpy_helper

import torch_ort_session


@pytest.mark.parametrize("exponent", [2.0, [2.0], [[2.0]], [1.0, 2.0, 3.0], [[[0.5]]]])
def test_a_constant_exponent_keeps_the_broadcast(exponent: object) -> None:
    weight = numpy_helper.from_array(np.asarray(exponent, np.float32), "y")
    graph = helper.make_graph(
        [helper.make_node("Pow", ["x", "y"], ["z"])],
        "g",
        [helper.make_tensor_value_info("x", 1, ["n"])],
        [helper.make_tensor_value_info("z", 1, None)],
        [weight],
    )
    session = torch_ort_session.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    x = torch.tensor([1.0, 2.0, 3.0])
    torch.testing.assert_close(session(x), torch.pow(x, torch.tensor(exponent)))


def test_a_constant_exponent_of_an_integer_base() -> None:
    weight = numpy_helper.from_array(np.asarray(3, np.int64), "y")
    graph = helper.make_graph(
        [helper.make_node("Pow", ["x", "y"], ["z"])],
        "g",
        [helper.make_tensor_value_info("x", 6, ["n"])],
        [helper.make_tensor_value_info("z", 6, None)],
        [weight],
    )
    session = torch_ort_session.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    assert session(torch.tensor([-2, 3], dtype=torch.int32)).tolist() == [-8, 27]
