"""Protobuf values to the records of ``ir``: types, attributes, value infos.

Source: https://onnx.ai/onnx/repo-docs/IR.html#standard-data-types
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from torch_ort_session.errors import ModelError
from torch_ort_session.ir.graph import ValueInfo
from torch_ort_session.ir.types import (
    Dim,
    ElementType,
    MapType,
    OptionalType,
    SequenceType,
    TensorType,
    ValueType,
)


def text(raw: bytes | str) -> str:
    """A string of the model; bytes that are not UTF-8 survive as surrogate escapes."""
    return raw if isinstance(raw, str) else raw.decode("utf-8", "surrogateescape")


# Generated names reach some thousands of characters.
_LONGEST_NAME = 1 << 16
_SHOWN_NAME = 200


def string(raw: str | bytes, place: str) -> str:
    """A name of the model.

    Raises:
        ModelError: It is not UTF-8 (the parser then hands out bytes), absurdly long, or holds NUL.
    """
    if isinstance(raw, bytes):
        raise ModelError(f"the name {raw[:40]!r} is not UTF-8: the file is damaged", place=place)
    if len(raw) > _LONGEST_NAME:
        raise ModelError(
            f"the name {raw[:40]!r}... has {len(raw)} characters: the file is broken", place=place
        )
    if "\0" in raw:
        raise ModelError(f"the name {raw[:40]!r} holds a NUL character: the file is damaged", place=place)
    return raw


def shown(name: str | bytes) -> str:
    """A name of the model for a message: quoted, and cut where it is absurdly long."""
    return repr(name if len(name) <= _SHOWN_NAME else name[: _SHOWN_NAME - 3]) + (
        "..." if len(name) > _SHOWN_NAME else ""
    )


def element_type(code: int, place: str) -> ElementType:
    """The element type of a code in the file.

    Raises:
        ModelError: The code is none that is known.
    """
    try:
        return ElementType(code)
    except ValueError:
        known = onnx.TensorProto.DataType.DESCRIPTOR.values_by_number.get(code)
        name = f" ({known.name.lower()})" if known is not None else ""
        raise ModelError(
            f"element type {code}{name} is not supported: torch has no dtype that carries it"
            if known is not None
            else f"element type {code} is none of ONNX: the file is damaged or newer than this package",
            place=place,
        ) from None


def value_type(proto: onnx.TypeProto, place: str, depth: int = 0) -> ValueType | None:
    """The type that a ``TypeProto`` describes; None when it says nothing.

    Raises:
        ModelError: An element type is unknown, or types nest absurdly deep.
    """
    if depth > 32:
        raise ModelError("the type nests more than 32 deep: the file is damaged", place=place)
    kind = proto.WhichOneof("value")
    if kind == "tensor_type" or kind == "sparse_tensor_type":
        tensor = proto.tensor_type if kind == "tensor_type" else proto.sparse_tensor_type
        shape = _shape(tensor.shape, place) if tensor.HasField("shape") else None
        return TensorType(element_type(tensor.elem_type, place), shape, sparse=kind == "sparse_tensor_type")
    if kind == "sequence_type":
        item = value_type(proto.sequence_type.elem_type, place, depth + 1)
        return SequenceType(item or TensorType(ElementType.UNDEFINED))
    if kind == "optional_type":
        item = value_type(proto.optional_type.elem_type, place, depth + 1)
        return OptionalType(item or TensorType(ElementType.UNDEFINED))
    if kind == "map_type":
        item = value_type(proto.map_type.value_type, place, depth + 1)
        key = element_type(proto.map_type.key_type, place)
        return MapType(key, item or TensorType(ElementType.UNDEFINED))
    return None


def _shape(proto: onnx.TensorShapeProto, place: str) -> tuple[Dim, ...]:
    dims: list[Dim] = []
    for dim in proto.dim:
        kind = dim.WhichOneof("value")
        if kind == "dim_value":
            # Exporters write -1 where a size is not known.
            dims.append(dim.dim_value if dim.dim_value >= 0 else None)
        else:
            symbol = string(dim.dim_param, place) if kind == "dim_param" else ""
            # "?" is how some exporters write a size that is not known: it names nothing.
            dims.append(symbol if symbol not in ("", "?") else None)
    return tuple(dims)


def value_infos(protos: Iterable[onnx.ValueInfoProto], place: str) -> tuple[ValueInfo, ...]:
    """Value infos in order.

    Raises:
        ModelError: A name or a type is malformed.
    """
    found = []
    for item in protos:
        name = string(item.name, place)
        kind = value_type(item.type, f"{place} / value {shown(name)}") if item.HasField("type") else None
        found.append(ValueInfo(name, kind))
    return tuple(found)
