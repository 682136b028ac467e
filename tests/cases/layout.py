"""Cases of Transpose, Expand, Tile, DepthToSpace, SpaceToDepth, ReverseSequence, Trilu."""

import numpy as np
from opcase import OpCase, const, t

WIDE = ("float32", "float16", "bfloat16", "int64", "bool", "uint16", "uint64", "complex64", "float8e5m2")
PLAIN = ("float32", "float16", "int64", "bool", "uint16", "uint32", "uint64")
TEXT = const([["a", "", "c"], ["d", "e", "f"]], "string")


def tiled(x: np.ndarray, tiles: np.ndarray, axis: np.ndarray) -> np.ndarray:
    return np.concatenate([x] * int(tiles), int(axis))


CASES: tuple[OpCase, ...] = (
    OpCase("Transpose", [t(2, 3, 4)], {"perm": [2, 0, 1]}, dtypes=WIDE, grad=True),
    OpCase("Transpose", [t(2, 3)], dtypes=("int4", "uint2", "float4e2m1", "float8e8m0"), id="small"),
    OpCase("Transpose", [t(2, 3, 4)], opsets=(1, 13, 25), id="reverse"),
    OpCase("Transpose", [t()], id="scalar"),
    OpCase("Transpose", [t(0, 3)], id="empty"),
    OpCase("Transpose", [TEXT], {"perm": [1, 0]}, id="strings"),
    OpCase("Expand", [t(3, 1), const([2, 1, 6], "int64")], dtypes=WIDE, grad=True),
    OpCase("Expand", [t(3, 1), const([3, 4], "int64")], opsets=(8, 13), id="same_rank"),
    OpCase("Expand", [t(2, 3, 1), const([3, 1], "int64")], id="lower_rank"),
    OpCase("Expand", [t(2, 3), const([1], "int64")], id="one"),
    OpCase("Expand", [t(), const([2, 2], "int64")], id="scalar"),
    OpCase("Expand", [t(1, 3), const([0, 3], "int64")], id="to_empty"),
    OpCase("Expand", [t(0, 3), const([2, 1, 1], "int64")], id="from_empty"),
    OpCase("Expand", [TEXT, const([2, 1, 1], "int64")], id="strings"),
    OpCase("Tile", [t(2, 3), const([2, 3], "int64")], dtypes=WIDE, grad=True, opsets=(6, 13)),
    OpCase("Tile", [t(2, 3), const([0, 1], "int64")], id="nothing"),
    OpCase("Tile", [t(), const([], "int64")], id="scalar"),
    OpCase("Tile", [TEXT, const([1, 2], "int64")], id="strings"),
    OpCase("Tile", [t(2, 3), const(2, "float32"), const(1, "float32")], opset=1, oracle=tiled, id="old"),
    OpCase("DepthToSpace", [t(1, 8, 2, 3)], {"blocksize": 2}, dtypes=WIDE, grad=True),
    OpCase("DepthToSpace", [t(1, 8, 2, 3)], {"blocksize": 2}, opsets=(1, 11, 13), id="opsets"),
    OpCase("DepthToSpace", [t(2, 18, 2, 3)], {"blocksize": 3, "mode": "CRD"}, grad=True, id="crd"),
    OpCase("SpaceToDepth", [t(2, 3, 4, 6)], {"blocksize": 2}, dtypes=WIDE, grad=True, opsets=(13, 28)),
    OpCase("SpaceToDepth", [t(2, 3, 4, 6)], {"blocksize": 2}, opset=1, id="old"),
    OpCase("SpaceToDepth", [t(2, 3, 6, 6)], {"blocksize": 3, "mode": "CRD"}, id="crd"),
    OpCase("ReverseSequence", [t(4, 3), const([4, 1, 2], "int64")], dtypes=PLAIN, grad=True),
    OpCase(
        "ReverseSequence",
        [t(3, 4, 2), const([4, 1, 2], "int64")],
        {"batch_axis": 0, "time_axis": 1},
        opsets=(10, 28),
        id="batch_first",
    ),
    OpCase("ReverseSequence", [TEXT, const([2, 1, 2], "int64")], id="strings"),
    OpCase("Trilu", [t(3, 4)], dtypes=PLAIN, grad=True),
    OpCase("Trilu", [t(2, 4, 3), const(1, "int64")], {"upper": 0}, dtypes=PLAIN, id="lower"),
    OpCase("Trilu", [t(4, 4), const(-2, "int64")], id="below"),
    OpCase("Trilu", [t(4, 4), const(9, "int64")], id="beyond"),
    OpCase("Trilu", [t(0, 4), const(1, "int64")], id="empty"),
)
