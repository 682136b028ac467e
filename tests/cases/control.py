"""Cases of If, Loop, Scan and SequenceMap; what their bodies see is tested in tests/control."""

from __future__ import annotations

import numpy as np
import onnx
from opcase import OpCase, const, seq, t


def body(text: str) -> onnx.GraphProto:
    """A body in ONNX's text form; ``x0``, ``x1`` and so on are the inputs of the node."""
    return onnx.parser.parse_graph(text)


BRANCHES = {
    "then_branch": body(
        "t () => (float[2] a, float[n] b) <float[2] w = {1, 2}> { a = Neg(w) b = Concat <axis = 0> (w, w) }"
    ),
    "else_branch": body(
        "e () => (float[2] c, float[n] d) <float[2] v = {3, 4}> { c = Identity(v) d = Exp(v) }"
    ),
}
ADD = "b (int64 i, bool c, float[n] s) => (bool d, float[n] o, float[n] z)"
LOOPS = {
    "counted": body(ADD + " { d = Identity(c) o = Add(s, s) z = Neg(o) }"),
    "indexed": body(ADD + " { d = Identity(c) f = Cast <to = 1> (i) o = Add(s, f) z = Mul(o, f) }"),
    "until": body(ADD + " <int64 k = {2}> { d = Less(i, k) o = Add(s, s) z = Neg(o) }"),
}
PREFIX = body("b (float[n] s, float[n] x) => (float[n] o, float[n] z) { o = Add(s, x) z = Identity(o) }")
BOTH = body(
    "b (float[n] s, float[n] x, float[n] y) => (float[n] o, float[n] z) { o = Add(s, x) z = Mul(o, y) }"
)
SQUARE = body("b (float[n] v) => (float[n] w, float[m] c) { w = Mul(v, v) c = Concat <axis = 0> (v, w) }")
MIXED = body(
    "b (float[n] v, float[n] u, float[k] p) => (float[n] w) { q = ReduceSum(p) r = Mul(v, q) w = Add(r, u) }"
)

CASES = (
    *(
        OpCase(
            "If",
            [const(flag, "bool")],
            BRANCHES,
            outputs=2,
            opsets=(11, 13, 16, 19, 21, 23, 24, 25),
            id=str(flag),
        )
        for flag in (True, False)
    ),
    OpCase(
        "If",
        [const(False, "bool")],
        BRANCHES,
        outputs=2,
        opsets=(1,),
        oracle=lambda cond, **_: (np.float32([3, 4]), np.exp(np.float32([3, 4]))),
        id="first",
    ),
    OpCase("If", [const([True], "bool")], BRANCHES, outputs=2, id="condition_of_rank_one"),
    OpCase("If", [const(True, "bool")], BRANCHES, outputs=(False, True), id="second_output_alone"),
    *(
        OpCase(
            "Loop",
            [const(4, "int64"), const(True, "bool"), t(3)],
            {"body": graph},
            outputs=2,
            opsets=(11, 13, 21),
            id=name,
        )
        for name, graph in LOOPS.items()
    ),
    *(
        OpCase(
            "Loop",
            [trips, going, t(3)],
            {"body": LOOPS[name]},
            outputs=2,
            oracle="onnxruntime",
            opset=opset,
            id=label,
        )
        for label, trips, going, name, opset in (
            ("no_condition", const([3], "int64"), None, "counted", 21),
            ("no_count", None, const(True, "bool"), "until", 21),
            ("no_trip", const(0, "int64"), None, "counted", 21),
            ("false_from_the_start", const(3, "int64"), const(False, "bool"), "counted", 21),
            ("first", const(2, "int64"), const(True, "bool"), "counted", 8),
        )
    ),
    OpCase(
        "Loop",
        [const(3, "int64"), const(True, "bool"), t(3)],
        {"body": LOOPS["indexed"]},
        outputs=2,
        grad=True,
        id="gradients",
    ),
    OpCase(
        "Scan",
        [t(3), t(5, 3)],
        {"body": PREFIX, "num_scan_inputs": 1},
        outputs=2,
        opsets=(9, 11, 16, 19, 21, 23, 24, 25),
    ),
    OpCase(
        "Scan",
        [t(3), t(3, 4), t(4, 3)],
        {
            "body": BOTH,
            "num_scan_inputs": 2,
            "scan_input_axes": [1, 0],
            "scan_input_directions": [0, 1],
            "scan_output_axes": [1],
            "scan_output_directions": [1],
        },
        outputs=2,
        oracle=lambda s, x, y, **_: scanned(s, x, y),
        id="axes_and_directions",
    ),
    OpCase(
        "Scan", [t(3), t(4, 3)], {"body": PREFIX, "num_scan_inputs": 1}, outputs=2, grad=True, id="gradients"
    ),
    *(
        OpCase(
            "Scan",
            [lengths, t(2, 3), t(2, 4, 3)],
            {"body": PREFIX, "num_scan_inputs": 1},
            outputs=2,
            opset=8,
            oracle="onnxruntime",
            id=label,
        )
        for label, lengths in (("batched", None), ("batched_with_lengths", const([4, 2], "int64")))
    ),
    OpCase("SequenceMap", [seq(t(3), t(2), t(0))], {"body": SQUARE}, outputs=2),
    OpCase(
        "SequenceMap",
        [seq(t(3), t(2)), seq(t(3), t(2)), t(4)],
        {"body": MIXED},
        oracle=lambda vs, us, p, **_: [v * p.sum() + u for v, u in zip(vs, us, strict=True)],
        id="sequences_and_a_tensor",
    ),
)


def scanned(state: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows = []
    for column, row in zip(x.T, y[::-1], strict=True):
        state = state + column
        rows.append(state * row)
    return state, np.stack(rows[::-1], axis=1)
