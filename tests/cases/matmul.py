"""Cases of MatMul and Gemm."""

from opcase import OpCase, const, t

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTS = ("int32", "int64", "uint32", "uint64")

CASES: tuple[OpCase, ...] = (
    OpCase("MatMul", [t(3, 4), t(4, 5)], dtypes=FLOATS, grad=True),
    OpCase("MatMul", [t(3, 4), t(4, 5)], dtypes=INTS, id="ints"),
    OpCase("MatMul", [t(3, 4), t(4, 5)], dtypes=("float32", "float64"), opsets=(1, 9), id="old"),
    OpCase("MatMul", [t(1, 1, 256), t(256, 260)], id="row"),
    OpCase("Gemm", [t(1, 256), t(260, 256), t(260)], {"transB": 1}, id="row"),
    OpCase("Gemm", [t(256, 1), t(256, 260)], {"transA": 1}, id="column"),
    OpCase("MatMul", [t(4), t(4)], grad=True, id="dot"),
    OpCase("MatMul", [t(4), t(2, 4, 3)], id="vector_batch"),
    OpCase("MatMul", [t(2, 3, 4), t(4)], id="batch_vector"),
    OpCase("MatMul", [t(2, 1, 3, 4), t(5, 4, 2)], grad=True, id="broadcast"),
    OpCase("MatMul", [t(2, 1, 3, 4), t(5, 4, 2)], dtypes=INTS, id="broadcast_ints"),
    OpCase("MatMul", [t(2, 3, 4), t(4, 6)], id="folded"),
    OpCase("MatMul", [t(0, 4), t(4, 5)], id="no_rows"),
    OpCase("MatMul", [t(3, 0), t(0, 5)], dtypes=("float32", "int64"), id="no_terms"),
    OpCase(
        "MatMul",
        [const([[2**31 - 1, 2]], "int32"), const([[2**31 - 1], [3]], "int32")],
        id="wraps",
    ),
    OpCase("Gemm", [t(3, 4), t(4, 5), t(3, 5)], dtypes=FLOATS, grad=True),
    OpCase("Gemm", [t(3, 4), t(4, 5), t(5)], dtypes=INTS, id="ints"),
    OpCase("Gemm", [t(3, 4), t(4, 5), t(5)], {"alpha": 2.0, "beta": 3.0}, INTS[:2], id="int_factors"),
    OpCase("Gemm", [t(4, 3), t(5, 4), t(1, 5)], {"transA": 1, "transB": 1}, grad=True, id="transposed"),
    OpCase("Gemm", [t(4, 3), t(4, 5), t(3, 1)], {"transA": 1, "alpha": 0.25, "beta": 0.35}, id="column"),
    OpCase("Gemm", [t(3, 4), t(5, 4), t(5)], {"transB": 1}, FLOATS, grad=True, id="linear"),
    OpCase("Gemm", [t(3, 4), t(4, 5), t()], id="scalar"),
    OpCase("Gemm", [t(3, 4), t(4, 5), None], {"alpha": 0.5}, grad=True, id="no_c"),
    OpCase("Gemm", [t(3, 4), t(4, 5)], opsets=(11, 13), id="no_c_at_all"),
    OpCase("Gemm", [t(3, 4), t(4, 5), t(5)], opsets=(7, 9, 11), id="old"),
    OpCase("Gemm", [t(3, 4), t(4, 5), t(5)], {"broadcast": 1}, opsets=(6,), id="broadcast"),
    OpCase("Gemm", [t(3, 4), t(5, 4), t(3, 5)], {"transB": 1}, opsets=(6,), id="legacy"),
    OpCase("Gemm", [t(0, 4), t(4, 5), t(5)], id="no_rows"),
    OpCase("Gemm", [t(3, 0), t(0, 5), t(5)], id="no_terms"),
)
