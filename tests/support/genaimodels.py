"""Decoders as onnxruntime-genai's model builder writes them, small: the same operators in the same places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HIDDEN, HEADS, GROUPS, WIDTH, WIDE, WORDS, LONGEST, BLOCK = 64, 4, 2, 16, 96, 48, 64, 32
WINDOW = 8
EXPERTS, CHOSEN = 4, 2
MICROSOFT = "com.microsoft"

Weights = Literal["float", "nbits", "qdq"]


@dataclass(frozen=True)
class ShapeFamily:
    """What the builder may be asked for, and what networks differ in.

    Attributes:
        weights: Matrices as they are, as MatMulNBits, or as DequantizeLinear and MatMul.
        bits: Of a quantized weight.
        symmetric: Whether there are no zero points.
        level: MatMulNBits' accuracy_level.
        tied: Whether the embedding is the last matrix, which GatherBlockQuantized reads.
        split: Whether queries, keys and values are split, normalized by head and rotated outside.
        layers: By layer "full", "sliding" (a mask), "window" (a cache of the window) or "conv".
        softcap: Bound of the scores and of the logits.
        sink: Whether heads have a sink.
        experts: Whether the last layer is a mixture: MoE, or QMoE where weights are quantized.
        half: Whether all floats are float16.
    """

    weights: Weights = "float"
    bits: int = 4
    symmetric: bool = True
    level: int = 1
    tied: bool = False
    split: bool = False
    layers: tuple[str, ...] = ("full", "full")
    softcap: float = 0.0
    sink: bool = False
    experts: bool = False
    half: bool = False


class _Graph:
    """Nodes and weights that a form asks for."""

    def __init__(self, form: ShapeFamily, seed: int) -> None:
        self.form = form
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    @property
    def float(self) -> int:
        return int(TensorProto.FLOAT16 if self.form.half else TensorProto.FLOAT)

    def add(
        self, op: str, *inputs: str, domain: str = "", outputs: tuple[str, ...] = (), **attributes: Any
    ) -> str:
        """A node; gives the name of its first output."""
        name = f"{op}_{len(self.nodes)}"
        made = outputs or (f"{name}/output_0",)
        self.nodes.append(helper.make_node(op, list(inputs), list(made), name, domain=domain, **attributes))
        return made[0]

    def constant(self, array: Any, dtype: Any = None) -> str:
        """A weight."""
        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def floats(self, *shape: int, scale: float = 1.0, base: float = 0.0) -> str:
        values = base + scale * self.rng.standard_normal(shape)
        return self.constant(values, np.float16 if self.form.half else np.float32)

    def packed(self, name: str, kind: int, dims: tuple[int, ...], numbers: np.ndarray[Any, Any]) -> str:
        """A weight of 4-bit integers."""
        pairs = numbers.reshape(-1, 2).astype(np.uint8)
        raw = ((pairs[:, 0] & 15) | (pairs[:, 1] << 4)).astype(np.uint8).tobytes()
        self.weights.append(helper.make_tensor(name, kind, dims, raw, raw=True))
        return name

    def scales(self, *shape: int, columns: int) -> str:
        """Scales of blocks that make products of so many columns as large as what is multiplied."""
        steps = 4.6 if self.form.bits == 4 else 74.0
        values = self.rng.uniform(0.5, 1.5, shape) / (steps * columns**0.5)
        return self.constant(values, np.float16 if self.form.half else np.float32)

    def norm(self, x: str, size: int) -> str:
        weight = self.floats(size, scale=0.1, base=1.0)
        return self.add("SimplifiedLayerNormalization", x, weight, axis=-1, epsilon=1e-6, stash_type=1)

    def skip(self, x: str, y: str) -> tuple[str, str]:
        """The sum of two, normalized, and the sum."""
        name = f"skip_{len(self.nodes)}"
        made = (f"{name}/normed", "", "", f"{name}/sum")
        weight = self.floats(HIDDEN, scale=0.1, base=1.0)
        op = "SkipSimplifiedLayerNormalization"
        self.add(op, x, y, weight, domain=MICROSOFT, outputs=made, epsilon=1e-6)
        return made[0], made[3]

    def matmul(self, x: str, rows: int, columns: int, given: tuple[str, str] | None = None) -> str:
        """A product with a weight [rows, columns] in the form that is asked for."""
        form = self.form
        if form.weights == "float":
            return self.add("MatMul", x, self.floats(rows, columns, scale=rows**-0.5))
        if form.weights == "qdq":
            return self.add("MatMul", x, self.dequantized(rows, columns))
        blocks, size = rows // BLOCK, BLOCK * form.bits // 8
        codes, scales = given or self.codes(columns, rows)
        inputs = [x, codes, scales]
        if not form.symmetric:
            points = self.rng.integers(0, 256, (columns, -(-blocks * form.bits // 8)))
            inputs.append(self.constant(points if form.bits == 4 else points // 8 + 112, np.uint8))
        assert blocks * size
        sizes = {"K": rows, "N": columns, "bits": form.bits, "block_size": BLOCK}
        return self.add("MatMulNBits", *inputs, domain=MICROSOFT, accuracy_level=form.level, **sizes)

    def codes(self, columns: int, rows: int) -> tuple[str, str]:
        """Numbers and scales of a quantized weight, as MatMulNBits takes them."""
        blocks, size = rows // BLOCK, BLOCK * self.form.bits // 8
        codes = self.constant(self.rng.integers(0, 256, (columns, blocks, size)), np.uint8)
        return codes, self.scales(columns, blocks, columns=rows)

    def dequantized(self, rows: int, columns: int) -> str:
        form, name = self.form, f"weight_{len(self.weights)}"
        kind = TensorProto.INT4 if form.symmetric else TensorProto.UINT4
        numbers = self.rng.integers(0, 16, rows * columns)
        codes = self.packed(f"{name}_DQ_Q4", kind, (rows, columns), numbers)
        scales = self.scales(rows // BLOCK, columns, columns=rows)
        inputs = [codes, scales]
        if not form.symmetric:
            dims = (rows // BLOCK, columns)
            points = self.rng.integers(6, 10, rows // BLOCK * columns)
            inputs.append(self.packed(f"{name}_DQ_zero_points", kind, dims, points))
        return self.add("DequantizeLinear", *inputs, axis=0, block_size=BLOCK)


def decoder(form: ShapeFamily, seed: int = 0) -> onnx.ModelProto:
    """A decoder of this form with random weights."""
    graph = _Graph(form, seed)
    one = graph.constant([1], np.int64)
    counts = graph.add("Sub", graph.add("ReduceSum", "attention_mask", one, keepdims=0), one)
    seqlens = graph.add("Cast", counts, to=TensorProto.INT32)
    places = graph.add("Gather", graph.add("Shape", "attention_mask"), graph.constant(1, np.int64), axis=0)
    total = graph.add("Cast", places, to=TensorProto.INT32)
    angles = np.arange(LONGEST)[:, None] / 10000.0 ** (np.arange(WIDTH // 2) / (WIDTH // 2))
    dtype = np.float16 if form.half else np.float32
    tables = graph.constant(np.cos(angles), dtype), graph.constant(np.sin(angles), dtype)
    shared: tuple[str, str] | None = None
    if form.tied:
        shared = graph.codes(WORDS, HIDDEN)
        flat = graph.add("Reshape", shared[0], graph.constant([WORDS, HIDDEN * form.bits // 8], np.int64))
        options = {"bits": form.bits, "block_size": BLOCK, "gather_axis": 0, "quantize_axis": 1}
        hidden = graph.add("GatherBlockQuantized", flat, "input_ids", shared[1], domain=MICROSOFT, **options)
    else:
        hidden = graph.add("Gather", graph.floats(WORDS, HIDDEN), "input_ids")
    normed = graph.norm(hidden, HIDDEN)
    for layer, kind in enumerate(form.layers):
        mixed = (
            _conv(graph, layer, normed)
            if kind == "conv"
            else _attention(graph, layer, kind, normed, (seqlens, total, *tables))
        )
        normed, hidden = graph.skip(hidden, mixed)
        last = layer == len(form.layers) - 1
        through = _experts(graph, normed) if form.experts and last else _gated(graph, normed)
        normed, hidden = graph.skip(hidden, through)
    logits = graph.matmul(normed, HIDDEN, WORDS, shared)
    if form.softcap:
        bound = graph.constant(form.softcap, dtype)
        logits = graph.add("Mul", graph.add("Tanh", graph.add("Div", logits, bound)), bound)
    graph.add("Identity", logits, outputs=("logits",))
    return _model(graph)


def _attention(graph: _Graph, layer: int, kind: str, x: str, others: tuple[str, ...]) -> str:
    form = graph.form
    seqlens, total, cos, sin = others
    x = graph.matmul(x, HIDDEN, (HEADS + 2 * GROUPS) * WIDTH)
    inputs = [x, "", ""]
    if form.split:
        sizes = graph.constant([HEADS * WIDTH, GROUPS * WIDTH, GROUPS * WIDTH], np.int64)
        parts = tuple(f"split_{layer}_{part}" for part in "qkv")
        graph.add("Split", x, sizes, outputs=parts, axis=-1)
        inputs = [
            _turned(graph, parts[0], HEADS, (cos, sin)),
            _turned(graph, parts[1], GROUPS, (cos, sin)),
            parts[2],
        ]
    inputs += [f"past_key_values.{layer}.key", f"past_key_values.{layer}.value", seqlens, total]
    inputs += ["", ""] if form.split else [cos, sin]
    inputs += ["", "", graph.floats(HEADS) if form.sink else ""]
    attributes: dict[str, Any] = {
        "num_heads": HEADS,
        "kv_num_heads": GROUPS,
        "scale": WIDTH**-0.5,
        "softcap": form.softcap,
        "do_rotary": int(not form.split),
        "rotary_interleaved": 0,
        "local_window_size": -1 if kind == "full" else WINDOW,
    }
    if kind == "window":
        attributes["sliding_window_cache"] = 1
    made = (f"attention_{layer}", f"present.{layer}.key", f"present.{layer}.value")
    graph.add("GroupQueryAttention", *inputs, domain=MICROSOFT, outputs=made, **attributes)
    return graph.matmul(made[0], HEADS * WIDTH, HIDDEN)


def _turned(graph: _Graph, x: str, heads: int, tables: tuple[str, str]) -> str:
    """Queries or keys, rotated and then normalized head by head."""
    x = graph.add("RotaryEmbedding", x, "position_ids", *tables, domain=MICROSOFT, interleaved=0)
    x = graph.norm(graph.add("Reshape", x, graph.constant([0, -1, WIDTH], np.int64)), WIDTH)
    return graph.add("Reshape", x, graph.constant([0, -1, heads * WIDTH], np.int64))


def _conv(graph: _Graph, layer: int, x: str) -> str:
    x = graph.add("Transpose", graph.matmul(x, HIDDEN, 3 * HIDDEN), perm=[0, 2, 1])
    parts = tuple(f"gates_{layer}_{part}" for part in "abx")
    graph.add("Split", x, graph.constant([HIDDEN] * 3, np.int64), outputs=parts, axis=1)
    gated = graph.add("Mul", parts[0], parts[2])
    weight, made = graph.floats(HIDDEN, 1, 3, scale=0.6), (f"conv_{layer}", f"present.{layer}.conv")
    inputs = (gated, weight, "", f"past.{layer}.conv")
    graph.add("CausalConvWithState", *inputs, domain=MICROSOFT, outputs=made, ndim=1, activation="none")
    x = graph.add("Transpose", graph.add("Mul", parts[1], made[0]), perm=[0, 2, 1])
    return graph.matmul(x, HIDDEN, HIDDEN)


def _gated(graph: _Graph, x: str) -> str:
    gate, up = graph.matmul(x, HIDDEN, WIDE), graph.matmul(x, HIDDEN, WIDE)
    gate = graph.add("Mul", gate, graph.add("Sigmoid", gate))
    return graph.matmul(graph.add("Mul", gate, up), WIDE, HIDDEN)


def _experts(graph: _Graph, x: str) -> str:
    router = graph.add("MatMul", x, graph.floats(HIDDEN, EXPERTS))
    router = graph.add("Reshape", router, graph.constant([-1, EXPERTS], np.int64))
    attributes = {
        "k": CHOSEN,
        "normalize_routing_weights": 1,
        "activation_type": "swiglu",
        "swiglu_fusion": 1,
        "activation_alpha": 1.0,
        "activation_beta": 0.0,
    }
    if graph.form.weights == "float":
        first = graph.floats(EXPERTS, 2 * WIDE, HIDDEN, scale=HIDDEN**-0.5)
        second = graph.floats(EXPERTS, HIDDEN, WIDE, scale=WIDE**-0.5)
        inputs = (first, graph.floats(EXPERTS, 2 * WIDE), second, graph.floats(EXPERTS, HIDDEN))
        return graph.add("MoE", x, router, *inputs, domain=MICROSOFT, **attributes)
    inputs = ()
    for rows, columns in ((2 * WIDE, HIDDEN), (HIDDEN, WIDE)):
        codes = graph.constant(graph.rng.integers(0, 256, (EXPERTS, rows, columns // 2)), np.uint8)
        scales = graph.scales(EXPERTS, rows, columns // BLOCK, columns=columns)
        inputs += (codes, scales, graph.floats(EXPERTS, rows, scale=0.1))
    attributes |= {"expert_weight_bits": 4, "block_size": BLOCK}
    return graph.add("QMoE", x, router, *inputs, domain=MICROSOFT, **attributes)


def _model(graph: _Graph) -> onnx.ModelProto:
    form = graph.form

    def info(name: str, kind: int, *dims: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, dims)

    inputs = [
        info("input_ids", TensorProto.INT64, "batch_size", "sequence_length"),
        info("attention_mask", TensorProto.INT64, "batch_size", "total_sequence_length"),
    ]
    if form.split:
        inputs.append(info("position_ids", TensorProto.INT64, "batch_size", "sequence_length"))
    outputs = [info("logits", graph.float, "batch_size", "sequence_length", WORDS)]
    for layer, kind in enumerate(form.layers):
        if kind == "conv":
            inputs.append(info(f"past.{layer}.conv", graph.float, "batch_size", HIDDEN, 2))
            outputs.append(info(f"present.{layer}.conv", graph.float, "batch_size", HIDDEN, 2))
            continue
        length = "sliding_length" if kind == "window" else "sequence_length"
        for part in ("key", "value"):
            past = ("batch_size", GROUPS, f"past_{length}", WIDTH)
            present = ("batch_size", GROUPS, f"total_{length}", WIDTH)
            inputs.append(info(f"past_key_values.{layer}.{part}", graph.float, *past))
            outputs.append(info(f"present.{layer}.{part}", graph.float, *present))
    made = helper.make_graph(graph.nodes, "decoder", inputs, outputs, graph.weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(made, opset_imports=opsets, ir_version=10)
