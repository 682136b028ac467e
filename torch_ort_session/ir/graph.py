"""What a model says, as frozen records; nothing here runs anything.

Source: https://onnx.ai/onnx/repo-docs/IR.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TypeAlias

import numpy as np
import torch

from torch_ort_session.ir.types import ElementType, ValueType


@dataclass(frozen=True, slots=True, eq=False)
class Weight:
    """A constant of the model: an initializer, or a tensor attribute.

    Attributes:
        name: Its value name; may be empty for an attribute.
        element: ONNX element type; types below a byte are carried unpacked (see ``ir.types``).
        data: A CPU tensor of the carrier dtype, or a numpy object array of ``str`` for strings. It may
            be a private (copy-on-write) map of the model's file: writing to it never reaches the file.
    """

    name: str
    element: ElementType
    data: torch.Tensor | np.ndarray[tuple[int, ...], np.dtype[np.object_]]

    @property
    def shape(self) -> tuple[int, ...]:
        """The dims."""
        return tuple(self.data.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the carried data."""
        return int(self.data.nbytes)


@dataclass(frozen=True, slots=True)
class ValueInfo:
    """A named value and what the model says of its type (None: nothing)."""

    name: str
    type: ValueType | None


AttributeValue: TypeAlias = (
    "int | float | str | Weight | Graph | ValueType | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]"
    " | tuple[Weight, ...] | tuple[Graph, ...] | tuple[ValueType, ...]"
)


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One operation.

    Attributes:
        name: Never empty: unnamed nodes get ``<op>_<index>``.
        op: Operator name.
        domain: ``""`` for ai.onnx (which is an alias).
        since: Schema revision, resolved against the opset that governs the node; for a domain that
            onnx has no schemas of, the imported version itself; 0 for an operator that onnx has no schema
            of in a domain that it knows.
        inputs: Value names; ``""`` where an optional input is left out.
        outputs: Value names; ``""`` where an output is not wanted.
        attributes: Values as they stand in the model (defaults are not filled in).
        overload: Tells functions of the same name apart; empty for every operator.
    """

    name: str
    op: str
    domain: str
    since: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    overload: str = ""

    @property
    def qualified(self) -> str:
        """Domain and operator, such as ``ai.onnx::Add``."""
        return f"{self.domain or 'ai.onnx'}::{self.op}"

    def subgraphs(self) -> Iterator[tuple[str, Graph]]:
        """The control-flow bodies of this node, by attribute name."""
        for name, value in self.attributes.items():
            if isinstance(value, Graph):
                yield name, value
            elif isinstance(value, tuple):
                for item in value:
                    if isinstance(item, Graph):
                        yield name, item

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt(self)


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A graph or a control-flow body.

    Attributes:
        name: Its name in the model.
        inputs: Formal inputs. Since IR version 4 an initializer need not be one; where one is both,
            the initializer is the default of the input.
        outputs: Results, in order.
        initializers: Constants by name.
        nodes: In an order in which every value is made before it is used.
        value_info: What the model says of intermediate values.
    """

    name: str
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    initializers: Mapping[str, Weight]
    nodes: tuple[Node, ...]
    value_info: Mapping[str, ValueInfo] = field(default_factory=dict)

    def all_nodes(self) -> Iterator[Node]:
        """Every node, those of nested bodies included."""
        for node in self.nodes:
            yield node
            for _, body in node.subgraphs():
                yield from body.all_nodes()

    def outer_names(self) -> tuple[str, ...]:
        """Values this graph reads from an enclosing scope, in the order of first use."""
        known = {info.name for info in self.inputs} | set(self.initializers)
        outer: dict[str, None] = {}
        for node in self.nodes:
            reads = list(node.inputs)
            for _, body in node.subgraphs():
                reads.extend(body.outer_names())
            for name in reads:
                if name and name not in known:
                    outer[name] = None
            known.update(node.outputs)
        for info in self.outputs:
            if info.name and info.name not in known:
                outer[info.name] = None
        return tuple(outer)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt(self)


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A loaded model: its graph with all model-local functions expanded.

    Attributes:
        graph: The main graph.
        opsets: Imported version by domain (``""`` for ai.onnx).
        ir_version: Version of the file format.
        producer: Name and version of the tool that wrote it, for display.
        metadata: The model's metadata properties.
        source: The path it was loaded from, or a word for where it came from.
    """

    graph: Graph
    opsets: Mapping[str, int]
    ir_version: int
    producer: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    source: str = "<memory>"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt(self)


def _rebuilt(record: Node | Graph | Model) -> tuple[object, ...]:
    """How a record pickles: read-only mappings do not, so they travel as plain ones."""
    values = (getattr(record, item.name) for item in fields(record))
    return type(record), tuple(dict(v) if isinstance(v, Mapping) else v for v in values)
