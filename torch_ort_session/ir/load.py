"""Model files and protos to a ``Model``.

Source: https://onnx.ai/onnx/repo-docs/IR.html
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import MappingProxyType
from typing import TypeAlias

import onnx

from torch_ort_session.ir import schema
from torch_ort_session.ir.convert import text, value_infos, value_type
from torch_ort_session.ir.graph import AttributeValue, Graph, Model, Node
from torch_ort_session.ir.limits import Limits
from torch_ort_session.ir.weights import weight

ModelSource: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | onnx.ModelProto"
Progress: TypeAlias = Callable[[str, int, int], None]


def load_model(
    source: ModelSource,
    *,
    base_dir: str | os.PathLike[str] | None = None,
    limits: Limits = Limits(),
    progress: Progress | None = None,
) -> Model:
    """Load a model."""
    if isinstance(source, onnx.ModelProto):
        proto, name = source, "<proto>"
        if base_dir is not None:
            onnx.load_external_data_for_model(proto, os.fspath(base_dir))
    elif isinstance(source, bytes | bytearray | memoryview):
        proto, name = onnx.load_from_string(bytes(source)), "<bytes>"
    else:
        proto, name = onnx.load(os.fspath(source)), os.fspath(source)
    opsets = {schema.canonical_domain(item.domain): item.version for item in proto.opset_import}
    return Model(
        graph=_graph(proto.graph, opsets),
        opsets=MappingProxyType(opsets),
        ir_version=proto.ir_version,
        producer=f"{proto.producer_name} {proto.producer_version}".strip(),
        metadata=MappingProxyType({item.key: item.value for item in proto.metadata_props}),
        source=name,
    )


def _graph(proto: onnx.GraphProto, opsets: dict[str, int]) -> Graph:
    place = f"graph {proto.name!r}"
    return Graph(
        name=proto.name,
        inputs=value_infos(proto.input, place),
        outputs=value_infos(proto.output, place),
        initializers=MappingProxyType({t.name: weight(t, f"initializer {t.name!r}") for t in proto.initializer}),
        nodes=tuple(_node(node, index, opsets) for index, node in enumerate(proto.node)),
        value_info=MappingProxyType({item.name: item for item in value_infos(proto.value_info, place)}),
    )


def _node(proto: onnx.NodeProto, index: int, opsets: dict[str, int]) -> Node:
    domain = schema.canonical_domain(proto.domain)
    found = schema.resolve(proto.op_type, domain, opsets.get(domain, 1))
    return Node(
        name=proto.name or f"{proto.op_type}_{index}",
        op=proto.op_type,
        domain=domain,
        since=found.since if found is not None else opsets.get(domain, 1),
        inputs=tuple(proto.input),
        outputs=tuple(proto.output),
        attributes=MappingProxyType({a.name: _attribute(a, opsets) for a in proto.attribute}),
    )


def _attribute(proto: onnx.AttributeProto, opsets: dict[str, int]) -> AttributeValue:
    kinds = onnx.AttributeProto
    place = f"attribute {proto.name!r}"
    if proto.type == kinds.FLOAT:
        return proto.f
    if proto.type == kinds.INT:
        return proto.i
    if proto.type == kinds.STRING:
        return text(proto.s)
    if proto.type == kinds.TENSOR:
        return weight(proto.t, place)
    if proto.type == kinds.GRAPH:
        return _graph(proto.g, opsets)
    if proto.type == kinds.FLOATS:
        return tuple(proto.floats)
    if proto.type == kinds.INTS:
        return tuple(proto.ints)
    if proto.type == kinds.STRINGS:
        return tuple(text(item) for item in proto.strings)
    if proto.type == kinds.TENSORS:
        return tuple(weight(item, place) for item in proto.tensors)
    if proto.type == kinds.TYPE_PROTO:
        found = value_type(proto.tp, place)
        assert found is not None
        return found
    return tuple(_graph(item, opsets) for item in proto.graphs)
