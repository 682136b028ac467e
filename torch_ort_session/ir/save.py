"""Records of ``ir`` back to protobuf messages.

Source: https://onnx.ai/onnx/repo-docs/IR.html
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import torch

from torch_ort_session.ir.graph import AttributeValue, Graph, Node, ValueInfo, Weight
from torch_ort_session.ir.types import (
    ElementType,
    MapType,
    OptionalType,
    SequenceType,
    TensorType,
    ValueType,
)

_KINDS = onnx.AttributeProto


def tensor_proto(weight: Weight) -> onnx.TensorProto:
    """A weight as a tensor message, its data in ``raw_data`` (types below a byte: one entry per byte of it).

    Raises:
        NotImplementedError: The element type is one of six bits.
    """
    proto = onnx.TensorProto(name=weight.name, data_type=int(weight.element), dims=weight.shape)
    if isinstance(weight.data, np.ndarray):
        proto.string_data.extend(
            str(item).encode("utf-8", "surrogateescape") for item in weight.data.reshape(-1)
        )
        return proto
    data = weight.data.detach().cpu().contiguous().reshape(-1)
    if weight.element.is_packed:
        data = _packed(data, weight.element)
    proto.raw_data = data.view(torch.uint8).numpy().tobytes() if data.numel() else b""
    return proto


def _packed(data: torch.Tensor, element: ElementType) -> torch.Tensor:
    if element.bits == 6:
        raise NotImplementedError(f"{element.label} weights cannot be written")
    if element is ElementType.FLOAT4E2M1:
        # Sign, then the two low bits of the exponent (bias 1 here, 7 there), then the top mantissa bit;
        # 0.5 is subnormal here and normal there.
        bits = data.view(torch.uint8).int()
        size = (((bits >> 3 & 15) - 6) * 2 | (bits >> 2 & 1)).clamp(min=0)
        codes = torch.where((bits & 127) == 0x30, 1, size) | bits >> 7 << 3
        data = torch.where((bits & 127) == 0, bits >> 7 << 3, codes)
    per_byte = 8 // element.bits
    codes = (data.to(torch.int16) & ((1 << element.bits) - 1)).to(torch.uint8)
    codes = torch.nn.functional.pad(codes, (0, -codes.numel() % per_byte)).reshape(-1, per_byte)
    out = codes[:, 0].clone()
    for index in range(1, per_byte):
        out |= codes[:, index] << (index * element.bits)
    return out


def type_proto(kind: ValueType | None) -> onnx.TypeProto:
    """A type as a message; an empty one for None."""
    proto = onnx.TypeProto()
    if isinstance(kind, TensorType):
        target = proto.sparse_tensor_type if kind.sparse else proto.tensor_type
        target.elem_type = int(kind.element)
        if kind.shape is not None:
            target.shape.SetInParent()
            for dim in kind.shape:
                item = target.shape.dim.add()
                if isinstance(dim, int):
                    item.dim_value = dim
                elif dim is not None:
                    item.dim_param = dim
    elif isinstance(kind, SequenceType):
        proto.sequence_type.elem_type.CopyFrom(type_proto(kind.item))
    elif isinstance(kind, OptionalType):
        proto.optional_type.elem_type.CopyFrom(type_proto(kind.item))
    elif isinstance(kind, MapType):
        proto.map_type.key_type = int(kind.key)
        proto.map_type.value_type.CopyFrom(type_proto(kind.item))
    return proto


def value_info_proto(info: ValueInfo) -> onnx.ValueInfoProto:
    """A value's name and type as a message."""
    proto = onnx.ValueInfoProto(name=info.name)
    if info.type is not None:
        proto.type.CopyFrom(type_proto(info.type))
    return proto


def graph_proto(graph: Graph) -> onnx.GraphProto:
    """A graph or body as a message."""
    proto = onnx.GraphProto(name=graph.name)
    proto.input.extend(value_info_proto(info) for info in graph.inputs)
    proto.output.extend(value_info_proto(info) for info in graph.outputs)
    proto.value_info.extend(value_info_proto(info) for info in graph.value_info.values())
    proto.initializer.extend(tensor_proto(weight) for weight in graph.initializers.values())
    proto.node.extend(node_proto(node) for node in graph.nodes)
    return proto


def node_proto(node: Node) -> onnx.NodeProto:
    """A node as a message."""
    proto = onnx.NodeProto(
        name=node.name,
        op_type=node.op,
        domain=node.domain,
        overload=node.overload,
        input=node.inputs,
        output=node.outputs,
    )
    proto.attribute.extend(attribute_proto(name, value) for name, value in node.attributes.items())
    return proto


def attribute_proto(name: str, value: AttributeValue) -> onnx.AttributeProto:
    """An attribute as a message; an empty list counts as a list of integers."""
    proto = onnx.AttributeProto(name=name)
    if isinstance(value, int):
        proto.type, proto.i = _KINDS.INT, int(value)
    elif isinstance(value, float):
        proto.type, proto.f = _KINDS.FLOAT, value
    elif isinstance(value, str):
        proto.type, proto.s = _KINDS.STRING, value.encode("utf-8", "surrogateescape")
    elif isinstance(value, Weight):
        proto.type = _KINDS.TENSOR
        proto.t.CopyFrom(tensor_proto(value))
    elif isinstance(value, Graph):
        proto.type = _KINDS.GRAPH
        proto.g.CopyFrom(graph_proto(value))
    elif isinstance(value, tuple):
        _list(proto, value)
    else:
        proto.type = _KINDS.TYPE_PROTO
        proto.tp.CopyFrom(type_proto(value))
    return proto


def _list(proto: onnx.AttributeProto, values: Sequence[object]) -> None:
    proto.type = _KINDS.INTS
    for value in values:
        if isinstance(value, int):
            proto.ints.append(value)
        elif isinstance(value, float):
            proto.type = _KINDS.FLOATS
            proto.floats.append(value)
        elif isinstance(value, str):
            proto.type = _KINDS.STRINGS
            proto.strings.append(value.encode("utf-8", "surrogateescape"))
        elif isinstance(value, Weight):
            proto.type = _KINDS.TENSORS
            proto.tensors.append(tensor_proto(value))
        elif isinstance(value, Graph):
            proto.type = _KINDS.GRAPHS
            proto.graphs.append(graph_proto(value))
        elif isinstance(value, TensorType | SequenceType | OptionalType | MapType):
            proto.type = _KINDS.TYPE_PROTOS
            proto.type_protos.append(type_proto(value))
