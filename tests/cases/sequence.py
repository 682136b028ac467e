"""Cases of sequences and optionals."""

import numpy as np
from opcase import OpCase, const, seq, t

TWO = seq(t(2, 3), t(2, 3))
THREE = seq(t(2, 3), t(1, 3), t(4, 3))
TEXT = const([["a", "b", "c"]], "string")


def at(value: int):
    return const(value, "int64")


CASES: tuple[OpCase, ...] = (
    OpCase("SequenceConstruct", [t(2), t(3)], dtypes=("float32", "int64"), oracle=lambda *xs: list(xs)),
    OpCase("SequenceEmpty", [], {"dtype": 7}, oracle=lambda **_: []),
    OpCase("SequenceAt", [THREE, at(1)], oracle=lambda s, i: s[1]),
    OpCase("SequenceAt", [THREE, const(-1, "int32")], oracle=lambda s, i: s[2], id="last"),
    OpCase("SequenceInsert", [THREE, t(5), at(1)], oracle=lambda s, x, i: [s[0], x, *s[1:]]),
    OpCase("SequenceInsert", [THREE, t(5)], oracle=lambda s, x: [*s, x], id="end"),
    OpCase("SequenceInsert", [THREE, t(5), at(-1)], oracle=lambda s, x, i: [*s[:2], x, s[2]], id="negative"),
    OpCase("SequenceInsert", [THREE, t(5), at(3)], oracle=lambda s, x, i: [*s, x], id="behind"),
    OpCase("SequenceErase", [THREE, at(0)], oracle=lambda s, i: s[1:]),
    OpCase("SequenceErase", [THREE], oracle=lambda s, i=None: s[:2], id="last"),
    OpCase("SequenceLength", [THREE], oracle=lambda s: np.array(3, "int64")),
    OpCase("ConcatFromSequence", [THREE], {"axis": 0}, oracle=lambda s, axis: np.concatenate(s)),
    OpCase(
        "ConcatFromSequence",
        [TWO],
        {"axis": -1, "new_axis": 1},
        oracle=lambda s, axis, new_axis: np.stack(s, -1),
        id="new_axis",
    ),
    OpCase("SplitToSequence", [t(5, 2), at(2)], oracle=lambda x, n: [x[:2], x[2:4], x[4:]], opsets=(11, 24)),
    OpCase(
        "SplitToSequence",
        [t(2, 5), const([1, 4], "int32")],
        {"axis": 1},
        oracle=lambda x, n, axis: [x[:, :1], x[:, 1:]],
        id="sizes",
    ),
    OpCase("SplitToSequence", [t(3, 2)], oracle=lambda x, **_: [x[:1], x[1:2], x[2:]], id="ones"),
    OpCase("SplitToSequence", [t(3, 2)], {"keepdims": 0}, oracle=lambda x, **_: list(x), id="entries"),
    OpCase(
        "SplitToSequence",
        [TEXT, at(2)],
        {"axis": 1},
        oracle=lambda x, n, axis: [x[:, :2], x[:, 2:]],
        id="text",
    ),
    OpCase("Optional", [t(2, 3)], oracle=lambda x: x, opsets=(15, 28)),
    OpCase("OptionalHasElement", [t(2, 3)], oracle=lambda x: np.array(True), opsets=(18, 28)),
    OpCase("OptionalHasElement", [], oracle=lambda: np.array(False), id="absent"),
    OpCase("OptionalGetElement", [t(2, 3)], oracle=lambda x: x, opsets=(18, 28)),
)
