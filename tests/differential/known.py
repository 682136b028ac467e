"""Where an oracle is wrong: of what is right, and why. Grown models with such a node it is not asked about.

Where it is wrong in part, `part` says in what; the rest is compared, in tests of the op's own.
"""

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
        part: What of its answer is not compared; empty for all of it.
    """

    oracle: str
    ops: tuple[str, ...]
    why: str
    first: int = 1
    last: int = 1000
    empty: bool = False
    part: str = ""


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
    Known(
        "onnxruntime",
        ("GreedySearch", "Sampling"),
        "what follows the end of a text is padding, by the documentation; onnxruntime stops when the last "
        "text of a batch has ended and leaves memory behind that step as it found it",
        part="tokens behind the step at which the last text ends",
    ),
    Known(
        "onnxruntime",
        ("BeamSearch",),
        "steps that are not made have no scores, so that 0 stands for them; onnxruntime leaves memory as it "
        "found it",
        part="scores of steps that are not made",
    ),
    Known(
        "onnxruntime",
        ("BeamSearch",),
        "whether a sample is done depends on its own texts, as onnxruntime itself shows of the sample alone; "
        "without early_stopping onnxruntime asks what another sample of the batch may still come to",
        part="batches without early_stopping, which are compared sample by sample",
    ),
    Known(
        "onnxruntime",
        ("Sampling",),
        "top_p keeps at least the most probable token, by the documentation; with its default of 0 rounding "
        "says which tokens onnxruntime leaves out, up to all of them",
        part="a top_p of 0",
    ),
    Known(
        "onnxruntime",
        ("Sampling",),
        "presence_penalty is taken off the scores of tokens that are there already, by the documentation; "
        "onnxruntime does not take it off at all",
        part="presence_penalty",
    ),
    Known(
        "onnxruntime",
        ("Sampling",),
        "both draw by the documented probabilities, from random numbers of their own: neither text is wrong",
        part="the tokens drawn; how often each is drawn is compared",
    ),
    Known(
        "onnxruntime",
        ("WhisperBeamSearch",),
        "non_speech_probs is the probability of silence at the first step, by the documentation; onnxruntime "
        "leaves it out on the CPU",
        part="non_speech_probs, which are compared with the scores of the first step",
    ),
    Known(
        "onnxruntime",
        ("QMoE",),
        "shares that follow from the scores sum to 1 where normalize_routing_weights asks for it, as for "
        "MoE; onnxruntime's CPU divides by the sum in any case",
        part="normalize_routing_weights of 0 without router_weights",
    ),
)


def wrong(oracle: str, model: onnx.ModelProto, *, empty: bool) -> bool:
    """Whether an oracle is known to be wrong about a model, or about feeds without elements only."""
    opset = max(entry.version for entry in model.opset_import if not entry.domain)
    ops = {node.op_type for node in _nodes(model.graph)}
    return any(
        not k.part
        and k.oracle == oracle
        and k.empty == empty
        and k.first <= opset <= k.last
        and ops & {*k.ops}
        for k in KNOWN
    )


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _nodes(attribute.g)
