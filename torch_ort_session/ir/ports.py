"""Ports: what users see of a model's inputs and outputs."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from torch_ort_session.ir.graph import ValueInfo
from torch_ort_session.ir.types import Dim, OptionalType, SequenceType, TensorType, ValueType, describe


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a model.

    Attributes:
        name: Its name.
        dtype: The torch dtype of its tensors (of a sequence's items); None for strings and unknown types.
        shape: Its dims, symbolic ones as strings and unknown ones as None; None when the rank is unknown,
            and for a sequence.
        type: The full ONNX type.
    """

    name: str
    dtype: torch.dtype | None
    shape: tuple[Dim, ...] | None
    type: ValueType | None = field(repr=False)

    def __str__(self) -> str:
        return f"{self.name}: {describe(self.type)}"


def port_of(info: ValueInfo) -> Port:
    """The port of a graph's input or output."""
    kind = info.type
    one = True
    while isinstance(kind, SequenceType | OptionalType):
        one = one and isinstance(kind, OptionalType)
        kind = kind.item
    if isinstance(kind, TensorType):
        shape = kind.shape if one else None
        return Port(info.name, kind.element.torch_dtype, shape, info.type)
    return Port(info.name, None, None, info.type)
