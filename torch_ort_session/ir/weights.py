"""Tensors of the model file to weights, without a copy where the layout allows.

Source: https://onnx.ai/onnx/repo-docs/IR.html#tensors
"""

from __future__ import annotations

import math

import numpy as np
import onnx
import torch

from torch_ort_session.errors import ModelError
from torch_ort_session.ir.convert import element_type, text
from torch_ort_session.ir.graph import Weight
from torch_ort_session.ir.types import ElementType

_FIELDS: dict[ElementType, tuple[str, torch.dtype]] = {
    ElementType.FLOAT: ("float_data", torch.float32),
    ElementType.COMPLEX64: ("float_data", torch.float32),
    ElementType.DOUBLE: ("double_data", torch.float64),
    ElementType.COMPLEX128: ("double_data", torch.float64),
    ElementType.INT64: ("int64_data", torch.int64),
    ElementType.UINT32: ("uint64_data", torch.uint64),
    ElementType.UINT64: ("uint64_data", torch.uint64),
}


def raw_tensor(raw: bytes, element: ElementType, dims: tuple[int, ...]) -> torch.Tensor:
    dtype = element.torch_dtype
    assert dtype is not None
    data = torch.frombuffer(bytearray(raw), dtype=torch.uint8) if raw else torch.empty(0, dtype=torch.uint8)
    if element.is_packed:
        return unpack(data, element, dims)
    return data.view(dtype).reshape(dims)


def unpack(packed: torch.Tensor, element: ElementType, dims: tuple[int, ...]) -> torch.Tensor:
    bits = element.bits
    mask = (1 << bits) - 1
    count = math.prod(dims)
    parts = [(packed >> shift) & mask for shift in range(0, 8, bits)]
    codes = torch.stack(parts, dim=-1).reshape(-1)[:count].reshape(dims)
    if element is ElementType.FLOAT4E2M1:
        values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
        table = values.to(torch.float8_e4m3fn).view(torch.uint8)
        return table[codes.long()].view(torch.float8_e4m3fn)
    if element in (ElementType.INT4, ElementType.INT2):
        half = 1 << (bits - 1)
        return ((codes ^ half).to(torch.int8) - half).contiguous()
    return codes.contiguous()


def weight(tensor: onnx.TensorProto, place: str) -> Weight:
    element = element_type(tensor.data_type, place)
    dims = tuple(tensor.dims)
    if element is ElementType.STRING:
        strings = np.empty(len(tensor.string_data), dtype=object)
        for index, item in enumerate(tensor.string_data):
            strings[index] = text(item)
        return Weight(tensor.name, element, strings.reshape(dims))
    if element is ElementType.UNDEFINED:
        raise ModelError("the tensor has no element type", place=place)
    if tensor.HasField("raw_data"):
        return Weight(tensor.name, element, raw_tensor(tensor.raw_data, element, dims))
    field, stored = _FIELDS.get(element, ("int32_data", torch.int32))
    values = getattr(tensor, field)
    data = torch.tensor(np.fromiter(values, dtype=str(stored).removeprefix("torch."), count=len(values)))
    dtype = element.torch_dtype
    assert dtype is not None
    if element.is_packed:
        return Weight(tensor.name, element, unpack(data.to(torch.uint8), element, dims))
    if element in (ElementType.COMPLEX64, ElementType.COMPLEX128):
        data = torch.view_as_complex(data.reshape(-1, 2))
    elif dtype.itemsize == 2 and dtype.is_floating_point:
        data = data.to(torch.int16).view(dtype)
    elif dtype.itemsize == 1 and dtype.is_floating_point:
        data = data.to(torch.uint8).view(dtype)
    else:
        data = data.to(dtype)
    return Weight(tensor.name, element, data.reshape(dims))
