"""Cases of Cast, CastLike and BitCast."""

import ml_dtypes
import numpy as np
import onnx
from opcase import OpCase, const, numpy_dtype, onnx_type, t

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTS = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
FLOAT8 = ("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz")
SMALL = ("int4", "uint4", "int2", "uint2", "float4e2m1")
EVERY = (*FLOATS, *INTS, *UNSIGNED, "bool", *FLOAT8, "float8e8m0", *SMALL)
TYPES = onnx.TensorProto.DataType
SPECIAL = const([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 447.0, 465.0, 1e30, -1e30, 57000.0, 61440.0])


def code(name):
    return onnx_type(np.zeros((), numpy_dtype(name)))


def through_float32(to):
    """ml_dtypes lacks some conversions between its own types."""
    return lambda x, **_: x.astype(np.float32).astype(numpy_dtype(to))


def eighth(to, saturate):
    """The 8-bit float of every number by ml_dtypes; what is too large held at the end if `saturate`."""
    kind = numpy_dtype(to)

    def oracle(x, **_):
        if not saturate:
            return x.astype(kind)
        ends = ml_dtypes.finfo(kind)
        return np.clip(x.astype(np.float32), float(ends.min), float(ends.max)).astype(kind)

    return oracle


def power_of_two(x, to, saturate=1, round_mode="up"):
    """float8e8m0 by logarithms, for numbers above 0."""
    exponent = np.log2(x.astype(np.float64))
    if round_mode == "nearest":
        below = np.floor(exponent)
        exponent = below + (x.astype(np.float64) >= 1.5 * 2.0**below)
    else:
        exponent = (np.ceil if round_mode == "up" else np.floor)(exponent)
    stored = np.clip(exponent, -127, 127) + 127 if saturate else exponent + 127
    stored = np.where((stored < 0) | (stored > 254), 255, stored)
    return stored.astype(np.uint8).view(ml_dtypes.float8_e8m0fnu)


def cases():
    for to in EVERY:
        # What a negative float becomes as an unsigned integer, the specification leaves open.
        low = 0 if to.startswith("u") or to == "float8e8m0" else -9
        high = 1.9 if to in SMALL else 9
        oracle = through_float32(to) if to in SMALL else "reference"
        data = t(3, 4, low=low, high=high)
        yield OpCase("Cast", [data], {"to": code(to)}, dtypes=EVERY, oracle=oracle, id=f"to_{to}")
    for to in FLOAT8:
        for saturate in (0, 1):
            yield OpCase(
                "Cast",
                [SPECIAL],
                {"to": code(to), "saturate": saturate},
                dtypes=FLOATS[:1],
                oracle=eighth(to, saturate),
                id=f"{to}_special_{saturate}",
            )
    for mode in ("up", "down", "nearest"):
        for saturate in (0, 1):
            yield OpCase(
                "Cast",
                [const([1.0, 1.5, 3.0, 2.9, 1e-3, 1e38, 1.6e38, 2.0**-127, 2.0**-126, 1.5 * 2.0**-127])],
                {"to": code("float8e8m0"), "saturate": saturate, "round_mode": mode},
                oracle=power_of_two,
                id=f"float8e8m0_{mode}_{saturate}",
            )
    for like in EVERY:
        low, high = (0, 1.9) if like.startswith("u") or like in SMALL else (0, 9)
        yield OpCase(
            "CastLike",
            [t(3, low=low, high=high), t(1, low=0, high=1, dtype=like)],
            dtypes=("float32", "int32"),
            oracle=lambda x, y: (
                x.astype(y.dtype)
                if y.dtype.name != "float8_e8m0fnu"
                else power_of_two(np.maximum(x, 1e-45), 0)
            ),
            id=f"like_{like}",
        )


def wrapped(to):
    return lambda x, **_: x.astype(numpy_dtype(to))


def pairs():
    """Types of one width."""
    widths = (
        ("uint8", "int8", *FLOAT8, "float8e8m0"),
        ("uint16", "int16", "float16", "bfloat16"),
        ("uint32", "int32", "float32"),
        ("uint64", "int64", "float64", "complex64"),
    )
    return [(a, b) for group in widths for a in group for b in group]


def reinterpreted(to):
    return lambda x, **_: np.ascontiguousarray(x).view(numpy_dtype(to)).reshape(x.shape)


def fourth(to):
    """A type of 4 bits read as another by its code, through uint8."""

    def oracle(x, **_):
        bits = x.view(np.uint8) & 15
        if to == "int4":
            return ((bits.astype(np.int8) ^ 8) - 8).astype(ml_dtypes.int4)
        return bits.view(numpy_dtype(to)) if to == "float4e2m1" else bits.astype(ml_dtypes.uint4)

    return oracle


CASES: tuple[OpCase, ...] = (
    *cases(),
    OpCase("Cast", [t(2, 3, low=0, high=9)], {"to": 6}, opsets=(6, 9, 13, 19, 21, 23, 24, 25), id="older"),
    OpCase(
        "Cast", [t(2, 3)], {"to": "DOUBLE"}, opset=1, oracle=lambda x, to: x.astype(np.float64), id="by_name"
    ),
    *(
        OpCase(
            "Cast",
            [const([300, -1, 2**31, 2**40 + 7, -129, 15, 8], "int64")],
            {"to": code(to)},
            oracle=wrapped(to),
            id=f"wraps_to_{to}",
        )
        for to in (*INTS, *UNSIGNED, "int4", "uint4", "int2", "uint2")
    ),
    OpCase("Cast", [t(2, 3)], {"to": 11}, dtypes=("float64",), grad=True, id="differentiable"),
    OpCase("Cast", [t()], {"to": 7}, id="scalar"),
    OpCase("Cast", [t(0, 2)], {"to": 17}, id="empty"),
    OpCase("Cast", [t(2, 0)], {"to": 22}, id="empty_int4"),
    OpCase(
        "Cast",
        [const(["3.14", "1000", "1e-5", "1E8", "-0.5", "+INF", "inf", "-InF", "nAn"], "string")],
        {"to": 1},
        oracle=lambda x, to: np.array([float(s) for s in x], np.float32),
        id="text_to_float",
    ),
    *(
        OpCase(
            "Cast",
            [const([["7", "-3"], ["0", "1"]], "string")],
            {"to": code(to)},
            oracle=lambda x, to, kind=to: np.array([[7, -3], [0, 1]]).astype(numpy_dtype(kind)),
            id=f"text_to_{to}",
        )
        for to in (*FLOATS, *INTS, "float8e4m3fn", "int4")
    ),
    OpCase(
        "Cast",
        [const(["18446744073709551615", "0"], "string")],
        {"to": TYPES.Value("UINT64")},
        oracle=lambda x, to: np.array([2**64 - 1, 0], np.uint64),
        id="text_to_uint64",
    ),
    OpCase(
        "Cast",
        [const(["100.5", "-1e3"], "string")],
        {"to": TYPES.Value("INT64")},
        oracle=lambda x, to: np.array([100, -1000]),
        id="text_with_fraction_to_int",
    ),
    OpCase(
        "Cast",
        [const(["1", "0", "True", "false", "2.5"], "string")],
        {"to": TYPES.Value("BOOL")},
        oracle=lambda x, to: np.array([True, False, True, False, True]),
        id="text_to_bool",
    ),
    OpCase("Cast", [const(["a", ""], "string")], {"to": 8}, oracle=lambda x, to: x, id="text_to_text"),
    OpCase("Cast", [const([0.1, -2.0, 1e-5, 3e4])], {"to": 8}, dtypes=FLOATS[:3], id="float_to_text"),
    OpCase("Cast", [const([-3, 0, 120])], {"to": 8}, dtypes=INTS, id="int_to_text"),
    OpCase(
        "Cast",
        [const([0.5, -2.0])],
        {"to": 8},
        dtypes=("bfloat16", "float8e5m2"),
        oracle=lambda x, to: np.array(["0.5", "-2.0"], object),
        id="short_float_to_text",
    ),
    OpCase(
        "CastLike",
        [const([1.5, 2.0]), const(["a"], "string")],
        oracle=lambda x, y: np.array(["1.5", "2.0"], object),
        id="like_text",
    ),
    OpCase(
        "CastLike",
        [const(["1.5", "2"], "string"), t(1)],
        dtypes=("float32", "float16"),
        oracle=lambda x, y: np.array([1.5, 2.0], y.dtype),
        id="text_like_number",
    ),
    OpCase("CastLike", [t(3), t(1, dtype="float16")], opsets=(15, 19, 21, 23, 24, 25), id="older"),
    *(
        OpCase(
            "BitCast",
            [t(3, 4, low=0, high=9, dtype=a)],
            {"to": code(b)},
            oracle=reinterpreted(b),
            id=f"{a}_{b}",
        )
        for a, b in pairs()
    ),
    OpCase(
        "BitCast",
        [t(3, 4, dtype="complex128")],
        {"to": 15},
        dtypes=("complex128",),
        oracle=reinterpreted("complex128"),
        id="complex128",
    ),
    OpCase("BitCast", [t(3, 4, dtype="bool")], {"to": 2}, oracle=reinterpreted("uint8"), id="bool_uint8"),
    OpCase("BitCast", [const([0, 1, 1], "uint8")], {"to": 9}, oracle=reinterpreted("bool"), id="uint8_bool"),
    *(
        OpCase(
            "BitCast",
            [const(np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn), a)]
            if a == "float4e2m1"
            else [t(40, dtype=a)],
            {"to": code(b)},
            oracle=fourth(b),
            id=f"{a}_{b}",
        )
        for a in ("int4", "uint4", "float4e2m1")
        for b in ("int4", "uint4", "float4e2m1")
    ),
    OpCase(
        "BitCast",
        [t(40, dtype="uint2")],
        {"to": code("int2")},
        oracle=lambda x, to: ((x.astype(np.int8) ^ 2) - 2).astype(ml_dtypes.int2),
        id="uint2_int2",
    ),
    OpCase("BitCast", [t()], {"to": 6}, oracle=reinterpreted("int32"), id="scalar"),
    OpCase("BitCast", [t(0, 3)], {"to": 6}, oracle=reinterpreted("int32"), id="empty"),
)
