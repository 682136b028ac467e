"""The readable dump."""

from __future__ import annotations

import numpy as np
from expecttest import assert_expected_inline
from ir.irmodels import floats, graph_of, model_of, value
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from onnx.helper import make_node

from torch_ort_session.ir.load import load_model
from torch_ort_session.ir.text import dump


def test_dump():
    body = graph_of(
        [make_node("Identity", ["i"], ["j"]), make_node("Identity", ["c"], ["d"])],
        [value("i", TensorProto.INT64, ()), value("c", TensorProto.BOOL, ()), "v"],
        [value("d", TensorProto.BOOL, ()), "v", value("j", TensorProto.INT64, ())],
        name="step",
    )
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2, None, "n"]))
    thing = make_node(
        "Thing",
        ["x", "", "s"],
        ["t", "", "u"],
        domain="other",
        name="n",
        t="a" * 31,
    )
    more = make_node("More", ["x"], ["m"], domain="other", ratio=1 / 3, names=["a"], kind=kind)
    last = make_node("Last", ["x"], ["l"], domain="other", i=list(range(9)), k=floats("k", 1, 2))
    thing.attribute.append(AttributeProto(name="none", type=AttributeProto.INTS))
    weights = [
        floats("few", 1, 2.5, float("inf"), 1e-7),
        numpy_helper.from_array(np.zeros((3, 4), np.float32), "many"),
        helper.make_tensor("words", TensorProto.STRING, [2], ["a", "b"]),
        helper.make_tensor("bits", TensorProto.INT4, [3], [1, -8, 7]),
        helper.make_tensor("eight", TensorProto.FLOAT8E5M2, [2], [0.5, 2]),
        helper.make_tensor("flag", TensorProto.BOOL, [], [True]),
        helper.make_tensor("z", TensorProto.COMPLEX64, [1], [1 + 2j]),
        numpy_helper.from_array(np.zeros((0, 4), np.float32), "nothing"),
    ]
    model = model_of(
        [thing, more, last, make_node("Loop", ["", "flag", "x"], ["y", "n"], body=body)],
        ["x", helper.make_value_info("s", kind)],
        ["y", value("n", TensorProto.INT64, ["k"])],
        weights=weights,
        opsets=(("", 21), ("other", 1)),
        name="main",
    )
    assert_expected_inline(
        dump(load_model(model).graph),
        """\
graph main(%x: float32[2], %s: sequence(float32[2, ?, n])) -> (%y: float32[2], %n: int64[k]) {
  %few = weight float32[4] (1, 2.5, inf, 1e-07)
  %many = weight float32[3, 4]
  %words = weight string[2] ('a', 'b')
  %bits = weight int4[3] (1, -8, 7)
  %eight = weight float8_e5m2[2] (0.5, 2)
  %flag = weight bool[] (True)
  %z = weight complex64[1] ((1+2j))
  %nothing = weight float32[0, 4]
  %t, _, %u = other::Thing(%x, _, %s) {t='aaaaaaaaaaaaaaaaaaaaaaaaaaa...', none=[]}  # n
  %m = other::More(%x) {kind=sequence(float32[2, ?, n]), names=['a'], ratio=0.333333}  # More_1
  %l = other::Last(%x) {i=[0, 1, 2, 3, 4, 5, 6, 7, ... 9 in all], k=float32[2] (1, 2)}  # Last_2
  %y, %n = ai.onnx::Loop(_, %flag, %x) {body=<step>}  # Loop_3
    body step(%i: int64[], %c: bool[], %v: float32[2]) -> (%d: bool[], %v: float32[2], %j: int64[]) {
      %j = ai.onnx::Identity(%i)  # Identity_0
      %d = ai.onnx::Identity(%c)  # Identity_1
    }
}
""",
    )
