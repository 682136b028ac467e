"""Where an oracle is wrong, as far as grown models show it: it is not asked about models with such a node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx


@dataclass(frozen=True)
class Known:
    """What an oracle gets wrong.

    Attributes:
        oracle: Which one.
        ops: In which ops.
        why: What it does and what is right.
        first: The first opset of a model in which it does so.
        last: The last one.
        empty: Whether only feeds without elements bring it out.
    """

    oracle: str
    ops: tuple[str, ...]
    why: str
    first: int = 1
    last: int = 1000
    empty: bool = False


KNOWN = (
    Known(
        "reference",
        ("Softmax", "LogSoftmax", "Hardmax"),
        "before opset 13 all dims from the axis on are one; the reference works along one axis, as later",
        last=12,
    ),
    Known(
        "reference",
        ("BatchNormalization",),
        "with one output it is inference on the stored statistics; the reference mixes in those of the batch",
        first=9,
        last=13,
    ),
    Known(
        "reference",
        ("LRN",),
        "every channel is normalised; the reference stops after as many channels as the batch has entries",
    ),
    Known(
        "onnxruntime",
        ("RNN", "GRU", "LSTM"),
        "the process ends when one of them is fed a tensor without elements",
        empty=True,
    ),
    Known(
        "onnxruntime",
        ("ReduceMean",),
        "the mean of nothing is NaN, as in numpy and torch; onnxruntime gives 0",
        empty=True,
    ),
    Known(
        "onnxruntime",
        ("Compress",),
        "a condition is no longer than the axis, by the spec; onnxruntime cuts one that is",
        empty=True,
    ),
    Known(
        "onnxruntime",
        ("ConvTranspose",),
        "auto_pad decides the extent whatever the batch; without a batch onnxruntime leaves it out",
        empty=True,
    ),
)


def wrong(oracle: str, model: onnx.ModelProto, *, empty: bool) -> bool:
    """Whether an oracle is known to be wrong about a model, or about feeds without elements only."""
    opset = max(entry.version for entry in model.opset_import if not entry.domain)
    ops = {node.op_type for node in _nodes(model.graph)}
    return any(
        k.oracle == oracle and k.empty == empty and k.first <= opset <= k.last and ops & {*k.ops}
        for k in KNOWN
    )


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _nodes(attribute.g)
