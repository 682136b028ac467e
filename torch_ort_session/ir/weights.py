"""Tensors of the model file to weights, without a copy where the layout allows.

Source: https://onnx.ai/onnx/repo-docs/IR.html#tensors
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx
import torch

from torch_ort_session.errors import ModelError
from torch_ort_session.ir.convert import element_type, string, text
from torch_ort_session.ir.graph import Weight
from torch_ort_session.ir.packed import decode, packed_bytes, unpack
from torch_ort_session.ir.storage import Storage
from torch_ort_session.ir.types import ElementType

# The typed field that holds each type, and the dtype of its entries; ``int32_data`` holds all others.
_FIELDS: dict[ElementType, tuple[str, type[np.generic]]] = {
    ElementType.FLOAT: ("float_data", np.float32),
    ElementType.COMPLEX64: ("float_data", np.float32),
    ElementType.DOUBLE: ("double_data", np.float64),
    ElementType.COMPLEX128: ("double_data", np.float64),
    ElementType.INT64: ("int64_data", np.int64),
    ElementType.UINT32: ("uint64_data", np.uint64),
    ElementType.UINT64: ("uint64_data", np.uint64),
    ElementType.STRING: ("string_data", np.object_),
}
_ALL_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
_MAX_RANK = 64


def weight(proto: onnx.TensorProto, storage: Storage, place: str) -> Weight:
    """A tensor of the model.

    Args:
        proto: The tensor.
        storage: Where its bytes may lie.
        place: What errors name, such as ``initializer 'w'``.

    Raises:
        ModelError: Its type is unknown, its dims are absurd, or its data does not fit its type and dims.
    """
    try:
        return _weight(proto, storage, place)
    except RuntimeError as error:
        raise _no_memory(error, place) from error


def _no_memory(error: RuntimeError, place: str) -> ModelError:
    """torch says so with a plain RuntimeError when the CPU has no memory left."""
    return ModelError(f"its data cannot be held in memory: {str(error)[:200]}", place=place)


def _weight(proto: onnx.TensorProto, storage: Storage, place: str) -> Weight:
    name = string(proto.name, place)
    element = element_type(proto.data_type, place)
    dims = checked_dims(proto.dims, storage.limits.elements, place)
    count = math.prod(dims)
    field = _field(proto, element, place)
    if proto.HasField("segment"):
        raise ModelError("it is stored in segments, which is not supported: save the model anew", place=place)
    if element is ElementType.STRING:
        return Weight(name, element, _strings(proto, dims, count, place))
    if field == "external" and count:
        return Weight(name, element, _from_bytes(proto, storage, element, dims, f"external data of {place}"))
    if field == "raw_data":
        return Weight(name, element, _from_bytes(proto, storage, element, dims, place))
    if field is not None and field != "external":
        return Weight(name, element, _from_numbers(proto, element, dims, place))
    if count:
        raise ModelError(f"it has no data, its dims {list(dims)} need {count} elements", place=place)
    return Weight(name, element, torch.empty(dims, dtype=element.torch_dtype))


def checked_dims(dims: Sequence[int], limit: int, place: str) -> tuple[int, ...]:
    """Dims that a tensor can have.

    Raises:
        ModelError: One is negative, there are too many, or their product is beyond the limit.
    """
    # A dim of zero does not excuse absurd ones beside it: strides are made of them.
    count = 1
    for dim in dims:
        if dim < 0:
            raise ModelError(f"dim {dim} is negative: the file is damaged", place=place)
        count *= max(dim, 1)
        if count > limit:
            raise ModelError(
                f"dims {_shown(dims)} have more than {limit} elements: the file is damaged, or "
                "pass Limits(elements=...)",
                place=place,
            )
    if len(dims) > _MAX_RANK:
        raise ModelError(f"rank {len(dims)} is more than torch's {_MAX_RANK}", place=place)
    return tuple(dims)


def _shown(dims: Sequence[int]) -> str:
    return "[" + ", ".join(str(dim) for dim in dims[:8]) + (", ...]" if len(dims) > 8 else "]")


def _field(proto: onnx.TensorProto, element: ElementType, place: str) -> str | None:
    """The field that holds the data: ``external``, ``raw_data``, a typed one, or None."""
    if element is ElementType.UNDEFINED:
        raise ModelError("it has no element type: the file is damaged", place=place)
    held = [name for name in _ALL_FIELDS if len(getattr(proto, name))]
    if proto.HasField("raw_data") and (proto.raw_data or not held):
        held.insert(0, "raw_data")
    if proto.data_location == onnx.TensorProto.EXTERNAL:
        held = [name for name in held if name != "raw_data" or proto.raw_data]
        held.insert(0, "external")
    if not held:
        return None
    if len(held) > 1:
        raise ModelError(
            f"it has data in {' and '.join(held)}, one is allowed: the file is damaged", place=place
        )
    wanted = _FIELDS.get(element, ("int32_data", np.int32))[0]
    if held[0] != wanted and (element is ElementType.STRING or held[0] not in ("raw_data", "external")):
        raise ModelError(
            f"a {element.label} tensor keeps its data in {wanted}, not in {held[0]}", place=place
        )
    return held[0]


def _from_bytes(
    proto: onnx.TensorProto, storage: Storage, element: ElementType, dims: tuple[int, ...], place: str
) -> torch.Tensor:
    dtype = element.torch_dtype
    assert dtype is not None
    count = math.prod(dims)
    read = storage.external if proto.data_location == onnx.TensorProto.EXTERNAL else storage.raw
    if element.is_packed:
        return unpack(read(proto, packed_bytes(count, element), torch.uint8, place), element, dims)
    if element is ElementType.BOOL:
        flags = read(proto, count, torch.uint8, place)
        # torch takes any byte but 0 and 1 for undefined behaviour.
        return (flags.view(dtype) if not count or int(flags.max()) < 2 else flags != 0).reshape(dims)
    return read(proto, count * dtype.itemsize, dtype, place).reshape(dims)


def _from_numbers(
    proto: onnx.TensorProto, element: ElementType, dims: tuple[int, ...], place: str
) -> torch.Tensor:
    dtype = element.torch_dtype
    assert dtype is not None
    field, kind = _FIELDS.get(element, ("int32_data", np.int32))
    count = math.prod(dims)
    expected = 2 * count if dtype.is_complex else count
    if element.bits in (2, 4):
        expected = packed_bytes(count, element)
    found = len(getattr(proto, field))
    if found != expected:
        raise ModelError(f"{field} has {found} entries, its dims and type need {expected}", place=place)
    data = torch.from_numpy(np.array(getattr(proto, field), dtype=kind))
    if dtype.is_complex:
        return torch.view_as_complex(data.reshape(*dims, 2))
    if data.dtype == dtype:
        return data.reshape(dims)
    bits = 8 if element.is_packed else element.bits
    if element is not ElementType.BOOL and field == "int32_data":
        # Writers store patterns of narrow types both sign- and zero-extended.
        _check_range(data, -(1 << bits - 1), (1 << bits) - 1, element, place)
    if element is ElementType.UINT32:
        data = data.view(torch.int64)
        _check_range(data, 0, (1 << 32) - 1, element, place)
    if element is ElementType.BOOL:
        return (data != 0).reshape(dims)
    if element.bits == 6:
        return decode(data.to(torch.uint8) & 63, element).reshape(dims)
    if element.is_packed:
        return unpack(data.to(torch.uint8), element, dims)
    if dtype.is_floating_point:
        return data.to(torch.uint8 if bits == 8 else torch.int16).view(dtype).reshape(dims)
    return data.to(dtype).reshape(dims)


def _check_range(data: torch.Tensor, low: int, high: int, element: ElementType, place: str) -> None:
    if not data.numel():
        return
    least, most = (int(value) for value in data.aminmax())
    if least < low or most > high:
        bad = least if least < low else most
        raise ModelError(f"the entry {bad} does not fit {element.label}: the file is damaged", place=place)


def _strings(
    proto: onnx.TensorProto, dims: tuple[int, ...], count: int, place: str
) -> np.ndarray[tuple[int, ...], np.dtype[np.object_]]:
    found = len(proto.string_data)
    if found != count:
        raise ModelError(f"string_data has {found} entries, its dims need {count}", place=place)
    strings = np.empty(count, dtype=np.object_)
    strings[:] = [text(item) for item in proto.string_data]
    return strings.reshape(dims)


def sparse_weight(proto: onnx.SparseTensorProto, storage: Storage, place: str) -> Weight:
    """A sparse tensor, made dense.

    Raises:
        ModelError: Its parts do not fit each other, an index is out of bounds or given twice, or the dense
            tensor is beyond the limits.
    """
    try:
        return _dense(proto, storage, place)
    except RuntimeError as error:
        raise _no_memory(error, place) from error


def _dense(proto: onnx.SparseTensorProto, storage: Storage, place: str) -> Weight:
    values = weight(proto.values, storage, f"{place} / values")
    dims = checked_dims(proto.dims, storage.limits.elements, place)
    dtype = values.element.torch_dtype
    nbytes = math.prod(dims) * (8 if dtype is None else dtype.itemsize)
    if nbytes > storage.limits.dense_bytes:
        raise ModelError(
            f"made dense it needs {nbytes} bytes, the limit is {storage.limits.dense_bytes}: "
            "pass Limits(dense_bytes=...) to raise it",
            place=place,
        )
    linear = _linear_indices(proto, values, dims, storage, place)
    if isinstance(values.data, np.ndarray):
        strings = np.full(math.prod(dims), "", dtype=np.object_)
        strings[linear.numpy()] = values.data
        return Weight(values.name, values.element, strings.reshape(dims))
    dense = torch.zeros(math.prod(dims), dtype=values.data.dtype)
    if dtype is not None and dtype.itemsize == 1:
        # Not every dtype of one byte can be scattered.
        dense.view(torch.uint8)[linear] = values.data.view(torch.uint8)
    else:
        dense[linear] = values.data
    return Weight(values.name, values.element, dense.reshape(dims))


def _linear_indices(
    proto: onnx.SparseTensorProto, values: Weight, dims: tuple[int, ...], storage: Storage, place: str
) -> torch.Tensor:
    indices = weight(proto.indices, storage, f"{place} / indices")
    count = values.shape[0] if len(values.shape) == 1 else None
    if (
        count is None
        or indices.element is not ElementType.INT64
        or not isinstance(indices.data, torch.Tensor)
    ):
        raise ModelError(
            "a sparse tensor needs values of rank 1 and int64 indices, it has values of rank "
            f"{len(values.shape)} "
            f"and {indices.element.label} indices",
            place=place,
        )
    linear = indices.data
    if indices.shape == (count, len(dims)):
        bad = (linear < 0) | (linear >= torch.tensor(dims, dtype=torch.int64))
        linear = (linear * torch.tensor([math.prod(dims[i + 1 :]) for i in range(len(dims))])).sum(1)
    elif indices.shape == (count,):
        bad = (linear < 0) | (linear >= math.prod(dims))
    else:
        raise ModelError(
            f"indices of shape {list(indices.shape)} fit neither [{count}] nor [{count}, {len(dims)}]",
            place=place,
        )
    if bool(bad.any()):
        raise ModelError(
            f"index {int(indices.data[bad][0])} lies outside of dims {list(dims)}: the file is damaged",
            place=place,
        )
    if torch.unique(linear).numel() != count:
        raise ModelError("an index is given twice: the file is damaged", place=place)
    return linear
