"""Element types of values, as far as schemas tell them without running anything.

Source: https://onnx.ai/onnx/repo-docs/IR.html#standard-data-types
"""

from __future__ import annotations

from collections.abc import Mapping

from torch_ort_session.ir.graph import Graph
from torch_ort_session.ir.types import ElementType, TensorType


def element_types(graph: Graph, outer: Mapping[str, ElementType] | None = None) -> Mapping[str, ElementType]:
    """Element types by value name."""
    types: dict[str, ElementType] = dict(outer or {})
    for info in (*graph.inputs, *graph.value_info.values(), *graph.outputs):
        if isinstance(info.type, TensorType):
            types[info.name] = info.type.element
    for name, weight in graph.initializers.items():
        types[name] = weight.element
    return types
