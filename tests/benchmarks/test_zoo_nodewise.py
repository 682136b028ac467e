"""benchmarks/nodewise.py: an error is charged to the node that makes it, not to those that pass it on."""

import nodewise
import numpy as np
import onnx
import pytest
from expecttest import assert_expected_inline
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("onnxruntime", reason="the oracle of every node")

X = np.linspace(-2.0, 2.0, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture
def path(tmp_path):
    nodes = [
        helper.make_node("Mul", ["x", "scale"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="second"),
        helper.make_node("ArgMax", ["b"], ["i"], name="third", axis=1),
        helper.make_node("Split", ["b"], ["c", "d"], name="fourth", axis=1, num_outputs=2),
        helper.make_node("Add", ["c", "d"], ["y"], name="fifth"),
    ]
    graph = helper.make_graph(
        nodes,
        "five",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 2]),
            helper.make_tensor_value_info("i", TensorProto.INT64, [3, 1]),
        ],
        [numpy_helper.from_array(np.float32(1.5).reshape(1), "scale")],
    )
    path = tmp_path / "five.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_all_nodes_agree(path, at_once):
    found = nodewise.compare(path, {"x": X}, 1e-6, at_once=at_once)
    assert [(node.name, node.agreement.reason) for node in found] == [
        (name, "") for name in ("first", "second", "third", "fourth", "fifth")
    ]
    assert nodewise.summarise(found).holds


def test_only_the_node_that_is_wrong_is_named(path, monkeypatch):
    def off_by_a_tenth(*arguments):
        values = real(*arguments)
        if "a" in values and "x" in values:
            # As if the kernel of Mul, and of nothing else, were wrong.
            values = {**values, "x": values["x"] * np.float32(1.1)}
        return values

    real = nodewise.reference
    monkeypatch.setattr(nodewise, "reference", off_by_a_tenth)
    found = nodewise.compare(path, {"x": X}, 1e-3)
    assert_expected_inline(nodewise.summarise(found).reason, """Mul 'first': a: error 0.1 is above 0.001""")


def test_a_summary_names_the_first_and_counts_the_rest():
    bad = nodewise.agreement.Agreement(0.5, 2, "y: wrong")
    good = nodewise.agreement.Agreement(1e-7, 0, "")
    nodes = [nodewise.NodeError(f"n{i}", "Add", bad if i % 2 else good) for i in range(10)]
    found = nodewise.summarise(nodes)
    assert (found.error, found.differing) == (0.5, 10)
    assert_expected_inline(
        found.reason, """Add 'n1': y: wrong; Add 'n3': y: wrong; Add 'n5': y: wrong; and 2 more of 10 nodes"""
    )


def test_control_flow_is_refused(tmp_path):
    body = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["z"])],
        "body",
        [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [3, 4])],
    )
    graph = helper.make_graph(
        [helper.make_node("If", ["cond"], ["y"], name="choice", then_branch=body, else_branch=body)],
        "branch",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4]),
            helper.make_tensor_value_info("cond", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 4])],
    )
    path = tmp_path / "branch.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    with pytest.raises(ValueError, match=r"node 'choice' \(If\) has a control-flow body"):
        nodewise.compare(path, {"x": X, "cond": np.array(True)}, 1e-6)


def test_ties_are_few_bytes_that_are_one_off():
    want = np.zeros(20_000, np.uint8)

    def holds(*wrong, size=20_000, dtype=np.uint8):
        got = want[:size].astype(dtype)
        got[: len(wrong)] = wrong
        expected = want[:size].astype(dtype)
        return np.array_equal(nodewise.settled([got], [expected])[0], expected)

    assert holds() and holds(1) and holds(1, 1)
    assert not holds(1, 1, 1) and not holds(2) and not holds(1, size=9_999)
    assert not holds(1, dtype=np.int64) and not holds(1, dtype=np.bool_)
