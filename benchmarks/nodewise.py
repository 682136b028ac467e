"""Compares a model node by node: each node alone, on the inputs that onnxruntime gave it.

For models that amplify rounding: where one ulp flips a quantised value, and that changes the whole output,
outputs say nothing about whether the nodes are right. Nodes with control-flow bodies are not taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import agreement
import numpy as np
import onnx
from onnx import helper

Array = np.ndarray[Any, np.dtype[Any]]

TIES = 1e-4
"""The share of a node's bytes that may be one off, since float32 reaches no half exactly: the one in 25,344
of a quantized BERT is 56.5000012 steps, which rounds up here and down in onnxruntime."""


@dataclass(frozen=True)
class NodeError:
    """One node: its name and operator, and how far its outputs are from the expected ones."""

    name: str
    op: str
    agreement: agreement.Agreement


def compare(
    path: Path, feed: Mapping[str, Array], tolerance: float, *, at_once: int = 600
) -> list[NodeError]:
    """The agreement of every node of a model's graph.

    Args:
        path: The model.
        feed: Its inputs.
        tolerance: For floating point outputs, of their largest magnitude; others must be equal, but for
            `TIES` of bytes.
        at_once: Nodes whose values are held in memory together.

    Raises:
        ValueError: A node has a control-flow body.
    """
    model = onnx.load(path)
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    found = []
    nodes = iter(model.graph.node)
    while chunk := list(islice(nodes, at_once)):
        values = reference(model, chunk, feed, constants)
        for node in chunk:
            found.append(_one(model, node, constants, values, tolerance))
    return found


def summarise(nodes: Sequence[NodeError], named: int = 3) -> agreement.Agreement:
    """The worst of all nodes as one agreement, whose reason names the first that do not hold."""
    wrong = [
        f"{node.op} {node.name!r}: {node.agreement.reason}" for node in nodes if not node.agreement.holds
    ]
    rest = [f"and {len(wrong) - named} more of {len(nodes)} nodes"] if len(wrong) > named else []
    return agreement.Agreement(
        max((node.agreement.error for node in nodes), default=0.0),
        sum(node.agreement.differing for node in nodes),
        "; ".join([*wrong[:named], *rest]),
    )


def reference(
    model: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    feed: Mapping[str, Array],
    constants: Mapping[str, onnx.TensorProto],
) -> dict[str, Array]:
    """What onnxruntime, without optimisations, has as inputs and outputs of these nodes."""
    import onnxruntime

    names = {name for node in nodes for name in (*node.input, *node.output) if name}
    names -= set(constants) | set(feed)
    wanted = onnx.ModelProto()
    wanted.CopyFrom(model)
    del wanted.graph.output[:]
    wanted.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(names))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        wanted.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return {**feed, **dict(zip(sorted(names), session.run(None, dict(feed)), strict=True))}


def _one(
    model: onnx.ModelProto,
    node: onnx.NodeProto,
    constants: Mapping[str, onnx.TensorProto],
    values: Mapping[str, Array],
    tolerance: float,
) -> NodeError:
    import torch

    import torch_ort_session

    if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
        raise ValueError(f"node {node.name!r} ({node.op_type}) has a control-flow body")
    inputs = [name for name in dict.fromkeys(node.input) if name and name not in constants]
    outputs = [name for name in node.output if name]
    graph = helper.make_graph(
        [node],
        "node",
        list(_ports(inputs, values)),
        list(_ports(outputs, values)),
        [constants[name] for name in dict.fromkeys(node.input) if name in constants],
    )
    alone = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    session = torch_ort_session.load(alone)
    got = session.run(outputs, {name: torch.from_numpy(values[name]) for name in inputs})
    results, expected = [value.numpy() for value in got], [values[name] for name in outputs]
    found = agreement.compare(outputs, settled(results, expected), expected, tolerance)
    return NodeError(node.name, node.op_type, found)


def settled(results: Sequence[Array], expected: Sequence[Array]) -> list[Array]:
    """Results, with those bytes taken from what is expected that may be ties: `TIES` of them at most."""
    return [want if _ties(got, want) else got for got, want in zip(results, expected, strict=True)]


def _ties(got: Array, want: Array) -> bool:
    if got.shape != want.shape or got.dtype != want.dtype or got.dtype.itemsize != 1:
        return False
    apart = np.abs(got.astype(np.int64) - want.astype(np.int64))
    return got.dtype.kind in "iu" and apart.max(initial=0) == 1 and bool(apart.sum() <= TIES * apart.size)


def _ports(names: Iterable[str], values: Mapping[str, Array]) -> Iterator[onnx.ValueInfoProto]:
    for name in names:
        array = values[name]
        yield helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
