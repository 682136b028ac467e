"""A readable dump of a graph, one line a node.

Such as ``%y = ai.onnx::Add(%a, %b)``; a name that is left out is ``_``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torch_ort_session.ir.graph import AttributeValue, Graph, Node, Weight
from torch_ort_session.ir.types import describe, describe_shape

_SHOWN_VALUES = 8
_SHOWN_TEXT = 30


def dump(graph: Graph) -> str:
    """The graph, its weights and nodes, bodies indented below the node they belong to."""
    return "\n".join(_graph(graph, "graph", "")) + "\n"


def node_line(node: Node) -> str:
    """One line for a node; bodies are shown by name only."""
    outputs = ", ".join(_value(name) for name in node.outputs)
    inputs = ", ".join(_value(name) for name in node.inputs)
    shown = ", ".join(f"{name}={_attribute(value)}" for name, value in node.attributes.items())
    line = f"{outputs} = {node.qualified}({inputs})" + (f" {{{shown}}}" if shown else "")
    return f"{line}  # {node.name}" if node.name else line


def weight_line(weight: Weight) -> str:
    """Type and dims of a weight, and its values when they are few."""
    line = weight.element.label + describe_shape(weight.shape)
    count = int(weight.data.size) if isinstance(weight.data, np.ndarray) else weight.data.numel()
    if not 0 < count <= _SHOWN_VALUES:
        return line
    if isinstance(weight.data, np.ndarray):
        values = [repr(item) for item in weight.data.reshape(-1)]
    else:
        values = [_number(item) for item in weight.data.reshape(-1).tolist()]
    return f"{line} ({', '.join(values)})"


def _graph(graph: Graph, word: str, indent: str) -> Iterator[str]:
    inputs = ", ".join(f"{_value(info.name)}: {describe(info.type)}" for info in graph.inputs)
    outputs = ", ".join(f"{_value(info.name)}: {describe(info.type)}" for info in graph.outputs)
    yield f"{indent}{word} {graph.name or '<unnamed>'}({inputs}) -> ({outputs}) {{"
    inner = indent + "  "
    for name, weight in graph.initializers.items():
        yield f"{inner}{_value(name)} = weight {weight_line(weight)}"
    for node in graph.nodes:
        yield inner + node_line(node)
        for name, body in node.subgraphs():
            yield from _graph(body, name, inner + "  ")
    yield f"{indent}}}"


def byte_size(count: int) -> str:
    """A number of bytes for people, such as ``12.3 MB``."""
    size = float(count)
    for unit in ("B", "KB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def _value(name: str) -> str:
    return f"%{name}" if name else "_"


def _attribute(value: AttributeValue) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, Weight):
        return weight_line(value)
    if isinstance(value, Graph):
        return f"<{value.name or 'body'}>"
    if isinstance(value, tuple):
        items = [_attribute(item) for item in value[:_SHOWN_VALUES]]
        more = f", ... {len(value)} in all" if len(value) > _SHOWN_VALUES else ""
        return f"[{', '.join(items)}{more}]"
    return describe(value)


def _text(value: str) -> str:
    return repr(value if len(value) <= _SHOWN_TEXT else value[: _SHOWN_TEXT - 3] + "...")


def _number(value: object) -> str:
    # Attributes are float32: six digits read better than the seventeen of the same value as a Python float.
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def weight_bytes(graph: Graph) -> int:
    """Bytes of every weight, those of control-flow bodies included."""
    inner: list[Node] = list(graph.all_nodes())
    own = sum(weight.nbytes for weight in graph.initializers.values())
    bodies = [body for node in inner for _, body in node.subgraphs()]
    return own + sum(weight.nbytes for body in bodies for weight in body.initializers.values())
