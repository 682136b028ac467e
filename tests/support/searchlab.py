"""Tiny decoders for GreedySearch, Sampling and BeamSearch, and what onnxruntime makes of the same models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from ortsession import ort_session

HEADS, SIZE, VOCAB, PLACES = 2, 3, 12, 64
WIDTH = HEADS * SIZE
_FLOAT, _INT = TensorProto.FLOAT, TensorProto.INT32


def weights(
    seed: int, *, layers: int = 1, sharp: float = 2.0, eos: int = 0, lift: float = 0.0
) -> dict[str, Any]:
    """The weights of a decoder; ``lift`` raises the end-of-sequence token."""
    rng = np.random.default_rng(seed)
    made: dict[str, Any] = {
        "words": rng.normal(size=(VOCAB, WIDTH)),
        "places": rng.normal(size=(PLACES, WIDTH)),
        "head": rng.normal(size=(WIDTH, VOCAB)) * sharp,
        "lift": np.where(np.arange(VOCAB) == eos, lift, 0.0),
    }
    for layer in range(layers):
        for name in ("q", "k", "v", "cq", "ck", "cv"):
            made[f"{name}{layer}"] = rng.normal(size=(WIDTH, WIDTH)) / np.sqrt(WIDTH)
    return {name: np.asarray(value, np.float32) for name, value in made.items()}


class _Graph:
    """Nodes and constants of a body under way."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.nodes: list[Any] = []
        self.constants = [numpy_helper.from_array(value, name) for name, value in given.items()]

    def add(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, list(inputs), [output], name=output, **attributes))
        return output

    def ints(self, name: str, *values: int) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(values, np.int64), name))
        return name

    def floats(self, name: str, value: float) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(value, np.float32), name))
        return name

    def heads(self, x: str, weight: str, output: str) -> str:
        """[B, S, W] projected and split: [B, heads, S, size]."""
        flat = self.add("MatMul", [x, weight], f"{output}_flat")
        split = self.add("Reshape", [flat, "split"], f"{output}_split")
        return self.add("Transpose", [split], output, perm=[0, 2, 1, 3])

    def attend(self, q: str, k: str, v: str, mask: str, output: str) -> str:
        """Attention of all to all that the mask [B, L] shows; [B, S, W]."""
        turned = self.add("Transpose", [k], f"{output}_kt", perm=[0, 1, 3, 2])
        scores = self.add("MatMul", [q, turned], f"{output}_scores")
        seen = self.add("Cast", [mask], f"{output}_seen", to=_FLOAT)
        hidden = self.add("Sub", [seen, "one"], f"{output}_hidden")
        far = self.add("Mul", [hidden, "far"], f"{output}_far")
        wide = self.add("Unsqueeze", [far, "axes12"], f"{output}_wide")
        shown = self.add("Add", [scores, wide], f"{output}_shown")
        share = self.add("Softmax", [shown], f"{output}_share", axis=-1)
        mixed = self.add("MatMul", [share, v], f"{output}_mixed")
        back = self.add("Transpose", [mixed], f"{output}_back", perm=[0, 2, 1, 3])
        return self.add("Reshape", [back, "join"], output)

    def grow(self, past: str, new: str, output: str, axis: int, length: str | None) -> str:
        """A cache with new rows behind it, or in a buffer behind ``length`` rows; what counts of it."""
        if length is None:
            return self.add("Concat", [past, new], output, axis=axis)
        dims = self.add("Shape", [new], f"{output}_dims")
        self.ints(f"{output}_axis", axis)
        rows = self.add("Gather", [dims, f"{output}_axis"], f"{output}_rows")
        end = self.add("Add", [length, rows], f"{output}_end")
        ends = [self.add("Squeeze", [each], f"{output}_{n}") for n, each in enumerate((length, end))]
        places = self.add("Range", [*ends, "step"], f"{output}_places")
        self.ints(f"{output}_form", *([1] * axis), -1, 1)
        shaped = self.add("Reshape", [places, f"{output}_form"], f"{output}_shaped")
        wide = self.add("Expand", [shaped, dims], f"{output}_wide")
        self.add("ScatterElements", [past, wide, new], output, axis=axis)
        return self.add("Slice", [output, "axis0", end, f"{output}_axis"], f"{output}_counted")

    def all_of(self, x: str, output: str) -> str:
        """A mask that shows all of x [B, S, ..]: [B, S]."""
        dims = self.add("Shape", [x], f"{output}_dims", end=2)
        ones = numpy_helper.from_array(np.ones(1, np.int32))
        self.nodes.append(helper.make_node("ConstantOfShape", [dims], [output], value=ones))
        return output

    def common(self) -> None:
        self.ints("split", 0, 0, HEADS, SIZE)
        self.ints("join", 0, 0, WIDTH)
        self.ints("axes12", 1, 2)
        self.ints("axis0", 0)
        self.constants.append(numpy_helper.from_array(np.asarray(1, np.int64), "step"))
        self.floats("one", 1.0)
        self.floats("far", 1e4)

    def logits(self, x: str) -> str:
        plain = self.add("MatMul", [x, "head"], "plain")
        return self.add("Add", [plain, "lift"], "logits")


def _tensor(name: str, kind: int, *dims: Any) -> Any:
    return helper.make_tensor_value_info(name, kind, dims)


def gpt(
    given: Mapping[str, Any], layers: int = 1, *, extras: Sequence[str] = (), outside: bool = False
) -> onnx.GraphProto:
    """A decoder of the kind of GPT-2: input_ids, position_ids, attention_mask, past_i -> logits, present_i.

    Args:
        given: Weights.
        layers: Layers.
        extras: Further inputs; with ``past_sequence_length`` the caches are buffers.
        outside: Whether ``head`` and ``words`` are values of the enclosing graph.
    """
    away = ("head", "words") if outside else ()
    g = _Graph({name: value for name, value in given.items() if name[0] != "c" and name not in away})
    g.common()
    length = g.add("Cast", ["past_sequence_length"], "length", to=TensorProto.INT64) if extras else None
    words = g.add("Gather", ["words", "input_ids"], "word")
    placed = g.add("Gather", ["places", "position_ids"], "place")
    x = g.add("Add", [words, placed], "x")
    g.ints("first", 0)
    g.ints("second", 1)
    for n in range(layers):
        q, k, v = (g.heads(x, f"{name}{n}", f"{name}_{n}") for name in "qkv")
        both = [g.add("Unsqueeze", [each, "axis0"], f"{each}_one") for each in (k, v)]
        new = g.add("Concat", both, f"new_{n}", axis=0)
        cache = g.grow(f"past_{n}", new, f"present_{n}", 3, length)
        keys, values = (
            g.add(
                "Squeeze",
                [g.add("Gather", [cache, which], f"{which}_{n}_of", axis=0), "axis0"],
                f"{which}_{n}",
            )
            for which in ("first", "second")
        )
        seen = g.attend(q, keys, values, "attention_mask", f"seen_{n}")
        x = g.add("Add", [x, seen], f"x_{n}")
    g.logits(x)
    past = [2, "batch", HEADS, "past", SIZE]
    return helper.make_graph(
        g.nodes,
        "gpt",
        [
            *(_tensor(name, _INT, "batch", "length") for name in ("input_ids", "position_ids")),
            _tensor("attention_mask", _INT, "batch", "total"),
            *(_tensor(f"past_{n}", _FLOAT, *past) for n in range(layers)),
            *map(_extra, extras),
        ],
        [
            _tensor("logits", _FLOAT, "batch", "length", VOCAB),
            *(_tensor(f"present_{n}", _FLOAT, 2, "batch", HEADS, "total", SIZE) for n in range(layers)),
        ],
        g.constants,
    )


def _cross(name: str, length: str, batch: str = "batch") -> Any:
    return _tensor(name, _FLOAT, batch, HEADS, length, SIZE)


def encoder(given: Mapping[str, Any], layers: int = 1, *, features: bool = False) -> onnx.GraphProto:
    """An encoder with the first step of its decoder: of the kind of T5, or of Whisper with ``features``."""
    g = _Graph(given)
    g.common()
    if features:
        hidden = g.add("Transpose", ["encoder_input_ids"], "encoder_hidden_states", perm=[0, 2, 1])
    else:
        hidden = g.add("Gather", ["words", "encoder_input_ids"], "encoder_hidden_states")
    shown = g.all_of(hidden, "frames") if features else "encoder_attention_mask"
    x = g.add("Gather", ["words", "decoder_input_ids"], "x")
    g.ints("ones", 1, 1)
    shape = g.add("Shape", ["decoder_input_ids"], "shape_of")
    g.nodes.append(
        helper.make_node(
            "ConstantOfShape", [shape], ["own"], value=numpy_helper.from_array(np.ones(1, np.int32))
        )
    )
    for n in range(layers):
        q, _, _ = (
            g.heads(x, f"{name}{n}", out)
            for name, out in (
                ("q", f"q_{n}"),
                ("k", f"present_key_self_{n}"),
                ("v", f"present_value_self_{n}"),
            )
        )
        seen = g.attend(q, f"present_key_self_{n}", f"present_value_self_{n}", "own", f"seen_{n}")
        x = g.add("Add", [x, seen], f"x_{n}")
        cq = g.heads(x, f"cq{n}", f"cq_{n}")
        g.heads(hidden, f"ck{n}", f"present_key_cross_{n}")
        g.heads(hidden, f"cv{n}", f"present_value_cross_{n}")
        met = g.attend(cq, f"present_key_cross_{n}", f"present_value_cross_{n}", shown, f"met_{n}")
        x = g.add("Add", [x, met], f"y_{n}")
    g.logits(x)
    return helper.make_graph(
        g.nodes,
        "encoder",
        [
            *(
                [_tensor("encoder_input_ids", _FLOAT, "batch", WIDTH, "source")]
                if features
                else [
                    _tensor("encoder_input_ids", _INT, "batch", "source"),
                    _tensor("encoder_attention_mask", _INT, "batch", "source"),
                ]
            ),
            _tensor("decoder_input_ids", _INT, "batch", "start" if features else 1),
        ],
        [
            _tensor("logits", _FLOAT, "batch", "start" if features else 1, VOCAB),
            _tensor("encoder_hidden_states", _FLOAT, "batch", "source", WIDTH),
            *(
                _cross(f"present_{kind}_self_{n}", "start")
                for n in range(layers)
                for kind in ("key", "value")
            ),
            *(
                _cross(f"present_{kind}_cross_{n}", "source")
                for n in range(layers)
                for kind in ("key", "value")
            ),
        ],
        g.constants,
    )


def short_encoder(given: Mapping[str, Any], layers: int = 1) -> onnx.GraphProto:
    """An encoder that leaves the first step to the decoder."""
    g = _Graph(given)
    g.common()
    hidden = g.add("Gather", ["words", "encoder_input_ids"], "hidden")
    g.add("Identity", ["encoder_attention_mask"], "unused")
    for n in range(layers):
        g.heads(hidden, f"ck{n}", f"present_key_cross_{n}")
        g.heads(hidden, f"cv{n}", f"present_value_cross_{n}")
    return helper.make_graph(
        g.nodes,
        "encoder",
        [
            _tensor("encoder_input_ids", _INT, "batch", "source"),
            _tensor("encoder_attention_mask", _INT, "batch", "source"),
        ],
        [_cross(f"present_{kind}_cross_{n}", "source") for n in range(layers) for kind in ("key", "value")],
        g.constants,
    )


def _extra(name: str) -> Any:
    return _tensor(name, _INT, *(["samples", "beams", "most"] if name == "cache_indirection" else [1]))


def t5(
    given: Mapping[str, Any],
    layers: int = 1,
    *,
    hidden: bool = True,
    whole: bool = False,
    extras: Sequence[str] = (),
    masked: bool = True,
) -> onnx.GraphProto:
    """A decoder of the kind of T5.

    Args:
        given: Weights.
        layers: Layers.
        hidden: Whether it has ``encoder_hidden_states``.
        whole: Whether it reads the text so far, of which it takes the last token.
        extras: Further inputs; with ``past_sequence_length`` the caches are buffers.
        masked: Whether it has ``encoder_attention_mask``; Whisper's has none.
    """
    g = _Graph(given)
    g.common()
    length = g.add("Cast", ["past_sequence_length"], "length", to=TensorProto.INT64) if extras else None
    ids = "input_ids"
    if whole:
        g.ints("last_from", -1)
        g.ints("last_to", 1 << 40)
        g.ints("axis1", 1)
        ids = g.add("Slice", ["input_ids", "last_from", "last_to", "axis1"], "last")
    x = g.add("Gather", ["words", ids], "x")
    shown = "encoder_attention_mask"
    if not masked:
        turned = g.add("Transpose", ["past_key_cross_0"], "turned", perm=[0, 2, 1, 3])
        shown = g.all_of(turned, "frames")
    for n in range(layers):
        q, k, v = (g.heads(x, f"{name}{n}", f"{name}_{n}") for name in "qkv")
        keys = g.grow(f"past_key_self_{n}", k, f"present_key_self_{n}", 2, length)
        values = g.grow(f"past_value_self_{n}", v, f"present_value_self_{n}", 2, length)
        if n == 0:
            shape = g.add("Shape", [keys], "shape_of")
            g.ints("which", 0, 2)
            lengths = g.add("Gather", [shape, "which"], "lengths")
            g.nodes.append(
                helper.make_node(
                    "ConstantOfShape", [lengths], ["own"], value=numpy_helper.from_array(np.ones(1, np.int32))
                )
            )
        seen = g.attend(q, keys, values, "own", f"seen_{n}")
        x = g.add("Add", [x, seen], f"x_{n}")
        cq = g.heads(x, f"cq{n}", f"cq_{n}")
        met = g.attend(cq, f"past_key_cross_{n}", f"past_value_cross_{n}", shown, f"met_{n}")
        x = g.add("Add", [x, met], f"y_{n}")
    g.logits(x)
    return helper.make_graph(
        g.nodes,
        "decoder",
        [
            _tensor("input_ids", _INT, "batch", "length" if whole else 1),
            *([_tensor("encoder_attention_mask", _INT, "batch", "source")] if masked else []),
            *([_tensor("encoder_hidden_states", _FLOAT, "batch", "source", WIDTH)] if hidden else []),
            *(_cross(f"past_{kind}_self_{n}", "past") for n in range(layers) for kind in ("key", "value")),
            *(_cross(f"past_{kind}_cross_{n}", "source") for n in range(layers) for kind in ("key", "value")),
            *map(_extra, extras),
        ],
        [
            _tensor("logits", _FLOAT, "batch", 1, VOCAB),
            *(
                _cross(f"present_{kind}_self_{n}", "total")
                for n in range(layers)
                for kind in ("key", "value")
            ),
        ],
        g.constants,
    )


INPUTS = {
    "GreedySearch": (
        "input_ids max_length min_length repetition_penalty vocab_mask prefix_vocab_mask attention_mask"
    ),
    "Sampling": (
        "input_ids max_length min_length repetition_penalty vocab_mask prefix_vocab_mask attention_mask "
        "presence_mask seed"
    ),
    "BeamSearch": (
        "input_ids max_length min_length num_beams num_return_sequences length_penalty repetition_penalty "
        "vocab_mask prefix_vocab_mask attention_mask decoder_input_ids logits_processor"
    ),
}
INPUTS["WhisperBeamSearch"] = INPUTS["BeamSearch"] + " cross_qk_layer_head extra_decoding_ids temperature"
OUTPUTS = {
    "GreedySearch": ("sequences",),
    "Sampling": ("sequences", "filtered_logits"),
    "BeamSearch": ("sequences", "sequences_scores", "scores"),
    "WhisperBeamSearch": ("sequences", "sequences_scores", "scores", "cross_qk", "non_speech_probs"),
}


def model(
    op: str,
    feeds: Mapping[str, Any],
    outputs: int | None = None,
    constants: Mapping[str, Any] | None = None,
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node, whose inputs are those that are fed.

    Args:
        op: Operator.
        feeds: What is fed, by the names of the operator's inputs.
        outputs: How many outputs are wanted; None for all.
        constants: Initializers beside it.
        **attributes: Attributes of the node.
    """
    names = [name if name in feeds else "" for name in INPUTS[op].split()]
    while names and not names[-1]:
        names.pop()
    made = OUTPUTS[op][:outputs]
    if op == "WhisperBeamSearch":
        made = tuple("" if name == "cross_qk" else name for name in made)
    node = helper.make_node(op, names, list(made), domain="com.microsoft", name="search", **attributes)
    graph = helper.make_graph(
        [node],
        "main",
        [
            helper.make_tensor_value_info(
                name,
                helper.np_dtype_to_tensor_dtype(value.dtype),
                value.shape if value.ndim < 2 else [None] * value.ndim,
            )
            for name, value in feeds.items()
        ],
        [
            _tensor(name, _INT if name == "sequences" else _FLOAT, *[None] * _rank(op, name))
            for name in made
            if name
        ],
        [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
    )
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)],
        ir_version=10,
    )


def _rank(op: str, name: str) -> int:
    ranks = {"sequences": 3 if op.endswith("BeamSearch") else 2, "scores": 4, "non_speech_probs": 1}
    return ranks.get(name, 2)


def theirs(made: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    """What onnxruntime's CPU provider gives."""
    return list(ort_session(made.SerializeToString()).run(None, dict(feeds)))
