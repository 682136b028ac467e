"""Counting what was compared with an oracle: cases, operators and the dtypes they ran on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import onnx
from onnx import TensorProto


@dataclass
class Compared:
    """What really ran beside an oracle.

    Attributes:
        cases: How many models, each with several feeds.
        pairs: Nodes by (domain, operator, dtype of the first typed input, else output).
    """

    cases: int = 0
    pairs: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def note(self, model: onnx.ModelProto) -> None:
        """Count a model that agreed with its oracles."""
        self.cases += 1
        self.pairs.update(pairs_of(model))

    def operators(self, domain: str) -> set[str]:
        return {op for where, op, _ in self.pairs if where == domain}

    def __str__(self) -> str:
        operators = {(domain, op) for domain, op, _ in self.pairs}
        return (
            f"compared: {len(self.pairs)} (operator, dtype) pairs of {len(operators)} operators, "
            f"{len(self.operators('com.microsoft'))} of them of com.microsoft, in {self.cases} cases"
        )


def pairs_of(model: onnx.ModelProto) -> list[tuple[str, str, str]]:
    """The operators of a model's own nodes, with the dtype each runs on.

    Drawn graphs declare every value. Types are not inferred: of some graphs onnx's inference of shapes dies.
    """
    graph = model.graph
    types = {info.name: _element(info.type) for info in (*graph.input, *graph.value_info, *graph.output)}
    types |= {item.name: item.data_type for item in graph.initializer}
    return [
        (node.domain, node.op_type, next((TensorProto.DataType.Name(t) for t in _known(node, types)), "?"))
        for node in graph.node
    ]


def _known(node: onnx.NodeProto, types: dict[str, int]) -> list[int]:
    return [types[name] for name in (*node.input, *node.output) if types.get(name)]


def _element(kind: onnx.TypeProto) -> int:
    if kind.HasField("sequence_type"):
        return _element(kind.sequence_type.elem_type)
    return int(kind.tensor_type.elem_type)
