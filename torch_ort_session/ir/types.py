"""ONNX element types and value types, and the torch dtype that carries each at run time.

Source: https://onnx.ai/onnx/intro/concepts.html#types
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import torch


class ElementType(enum.IntEnum):
    """An element type of ONNX; the number is its code in the file format."""

    UNDEFINED = 0
    FLOAT = 1
    UINT8 = 2
    INT8 = 3
    UINT16 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    STRING = 8
    BOOL = 9
    FLOAT16 = 10
    DOUBLE = 11
    UINT32 = 12
    UINT64 = 13
    COMPLEX64 = 14
    COMPLEX128 = 15
    BFLOAT16 = 16
    FLOAT8E4M3FN = 17
    FLOAT8E4M3FNUZ = 18
    FLOAT8E5M2 = 19
    FLOAT8E5M2FNUZ = 20
    UINT4 = 21
    INT4 = 22
    FLOAT4E2M1 = 23
    FLOAT8E8M0 = 24
    UINT2 = 25
    INT2 = 26
    FLOAT6E2M3 = 27
    FLOAT6E3M2 = 28

    @property
    def torch_dtype(self) -> torch.dtype | None:
        """The dtype whose tensors carry this type, or None for strings and undefined."""
        return _CARRIER.get(self)

    @property
    def bits(self) -> int:
        """Bits of one element in the file format; 0 for strings and undefined."""
        if self in _PACKED_BITS:
            return _PACKED_BITS[self]
        dtype = self.torch_dtype
        return 0 if dtype is None else dtype.itemsize * 8

    @property
    def is_packed(self) -> bool:
        """Whether several elements share a byte in the file format."""
        return self in _PACKED_BITS

    @property
    def is_float(self) -> bool:
        """Whether the type is a real floating-point one (what can be a Parameter)."""
        return self in (
            ElementType.FLOAT,
            ElementType.DOUBLE,
            ElementType.FLOAT16,
            ElementType.BFLOAT16,
        )

    @property
    def label(self) -> str:
        """The name shown to users: torch's where torch has the type, else ONNX's in lower case."""
        dtype = self.torch_dtype
        if dtype is None or self.is_packed:
            return self.name.lower()
        return str(dtype).removeprefix("torch.")


# Types of less than a byte are carried unpacked, in the smallest dtype whose values contain theirs exactly
# (every float4 and float6 value is a float8_e4m3fn value), so that kernels need no second code path.
_CARRIER: dict[ElementType, torch.dtype] = {
    ElementType.FLOAT: torch.float32,
    ElementType.UINT8: torch.uint8,
    ElementType.INT8: torch.int8,
    ElementType.UINT16: torch.uint16,
    ElementType.INT16: torch.int16,
    ElementType.INT32: torch.int32,
    ElementType.INT64: torch.int64,
    ElementType.BOOL: torch.bool,
    ElementType.FLOAT16: torch.float16,
    ElementType.DOUBLE: torch.float64,
    ElementType.UINT32: torch.uint32,
    ElementType.UINT64: torch.uint64,
    ElementType.COMPLEX64: torch.complex64,
    ElementType.COMPLEX128: torch.complex128,
    ElementType.BFLOAT16: torch.bfloat16,
    ElementType.FLOAT8E4M3FN: torch.float8_e4m3fn,
    ElementType.FLOAT8E4M3FNUZ: torch.float8_e4m3fnuz,
    ElementType.FLOAT8E5M2: torch.float8_e5m2,
    ElementType.FLOAT8E5M2FNUZ: torch.float8_e5m2fnuz,
    ElementType.UINT4: torch.uint8,
    ElementType.INT4: torch.int8,
    ElementType.FLOAT4E2M1: torch.float8_e4m3fn,
    ElementType.FLOAT8E8M0: torch.float8_e8m0fnu,
    ElementType.UINT2: torch.uint8,
    ElementType.INT2: torch.int8,
    ElementType.FLOAT6E2M3: torch.float8_e4m3fn,
    ElementType.FLOAT6E3M2: torch.float8_e4m3fn,
}
_PACKED_BITS: dict[ElementType, int] = {
    ElementType.UINT4: 4,
    ElementType.INT4: 4,
    ElementType.FLOAT4E2M1: 4,
    ElementType.UINT2: 2,
    ElementType.INT2: 2,
    ElementType.FLOAT6E2M3: 6,
    ElementType.FLOAT6E3M2: 6,
}
_FROM_TORCH: dict[torch.dtype, ElementType] = {
    dtype: code for code, dtype in _CARRIER.items() if code not in _PACKED_BITS
}


def element_type_of(dtype: torch.dtype) -> ElementType:
    """The ONNX element type that a torch dtype carries on its own.

    Raises:
        TypeError: ONNX has no such element type.
    """
    try:
        return _FROM_TORCH[dtype]
    except KeyError:
        raise TypeError(f"ONNX has no element type for {dtype}") from None


Dim = int | str | None
"""A dimension: a size, a symbol's name, or None when nothing is said of it."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor: its element type and dims; ``shape`` is None when even the rank is unknown."""

    element: ElementType
    shape: tuple[Dim, ...] | None = None
    sparse: bool = False


@dataclass(frozen=True, slots=True)
class SequenceType:
    """A sequence of values of one type."""

    item: ValueType


@dataclass(frozen=True, slots=True)
class OptionalType:
    """A value that may be absent."""

    item: ValueType


@dataclass(frozen=True, slots=True)
class MapType:
    """A map from keys (integers or strings) to values."""

    key: ElementType
    item: ValueType


ValueType = TensorType | SequenceType | OptionalType | MapType


def describe(value_type: ValueType | None) -> str:
    """One readable line for a type, such as ``float32[batch, 3, ?]``."""
    if value_type is None:
        return "?"
    if isinstance(value_type, TensorType):
        dims = "[...]" if value_type.shape is None else describe_shape(value_type.shape)
        return ("sparse " if value_type.sparse else "") + value_type.element.label + dims
    if isinstance(value_type, SequenceType):
        return f"sequence({describe(value_type.item)})"
    if isinstance(value_type, OptionalType):
        return f"optional({describe(value_type.item)})"
    return f"map({value_type.key.label}, {describe(value_type.item)})"


def describe_shape(shape: tuple[Dim, ...]) -> str:
    """Dims in brackets; an unknown one is ``?``."""
    return "[" + ", ".join("?" if dim is None else str(dim) for dim in shape) + "]"
