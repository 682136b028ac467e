"""A token of a small llama behind a long cache: bound in place, with the cache copied, and in onnxruntime.

The model has GroupQueryAttention with rotation, as onnxruntime-genai's builder writes it. Its caches are
bound, each once, as past and present. "ours" attends with the compiled kernel and writes the new rows alone;
"copying" is torch's own ops, which make new caches that are copied back; onnxruntime shares its buffers too.
All three take the same token at the last place of the cache, in turn.

`--check` exits with 1 when ours is not faster than copying, or the results are further from onnxruntime's
than they may be. Times are medians; ratios are medians of the ratios within each round.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from unittest import mock

import decode_kernels
import harness
import modelruns
import numpy as np
import onnx
import onnxruntime
import torch
from agreement import relative_error
from onnx import TensorProto, helper, numpy_helper

import torch_ort_session
from torch_ort_session.runtime.bindings import shared_caches as sharing

LAYERS, HEADS, GROUPS, WIDTH, WORDS = 4, 16, 4, 64, 2000
HIDDEN = HEADS * WIDTH
ERROR = 1e-4
"""How far logits may lie apart, of the largest magnitude."""

Array = np.ndarray[Any, np.dtype[Any]]
Row = dict[str, Any]


class Llama:
    """The model, and what it is fed.

    Args:
        room: Rows of its caches, all of which count but the last one, which is the token's.
        hidden: Whether there is anything beside the attention.
    """

    def __init__(self, room: int, *, hidden: bool) -> None:
        self.rng, self.room = np.random.default_rng(0), room
        self.weights: dict[str, Array] = {"total": np.array(room, np.int32)}
        angles = np.outer(np.arange(room), 1e4 ** -(np.arange(WIDTH // 2) / (WIDTH // 2)))
        self.weights |= {"cos": np.cos(angles), "sin": np.sin(angles)}
        self.nodes: list[onnx.NodeProto] = []
        self.caches = [f"past.{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")]
        x = self.add("Gather", self.weight("words", WORDS, HIDDEN), "token")
        for layer in range(LAYERS):
            x = self.layer(layer, x, hidden=hidden)
        self.add("MatMul", x, self.weight("head", HIDDEN, WORDS), name="logits")

    def add(self, op: str, *inputs: str, name: str = "", domain: str = "", **attributes: Any) -> str:
        name = name or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], domain=domain, **attributes))
        return name

    def weight(self, name: str, *shape: int) -> str:
        self.weights[name] = self.rng.standard_normal(shape) / shape[0] ** 0.5
        return name

    def norm(self, name: str, x: str) -> str:
        self.weights[name] = np.ones(HIDDEN)
        return self.add("SimplifiedLayerNormalization", x, name, epsilon=1e-5)

    def layer(self, layer: int, x: str, *, hidden: bool) -> str:
        own = f"layers.{layer}."
        size = (HEADS + 2 * GROUPS) * WIDTH
        packed = self.add("MatMul", self.norm(own + "norm1", x), self.weight(own + "qkv", HIDDEN, size))
        past = [f"past.{layer}.key", f"past.{layer}.value"]
        given = [name.replace("past", "present") for name in past]
        inputs = [packed, "", "", *past, "last", "total", "cos", "sin"]
        self.nodes.append(
            helper.make_node(
                "GroupQueryAttention",
                inputs,
                [own + "y", *given],
                domain="com.microsoft",
                num_heads=HEADS,
                kv_num_heads=GROUPS,
                do_rotary=1,
            )
        )
        if not hidden:
            return self.add("Add", x, own + "y")
        x = self.add("Add", x, self.add("MatMul", own + "y", self.weight(own + "o", HIDDEN, HIDDEN)))
        normed = self.norm(own + "norm2", x)
        gate = self.add("MatMul", normed, self.weight(own + "gate", HIDDEN, 2 * HIDDEN))
        gate = self.add("Mul", gate, self.add("Sigmoid", gate))
        up = self.add("MatMul", normed, self.weight(own + "up", HIDDEN, 2 * HIDDEN))
        down = self.add("MatMul", self.add("Mul", gate, up), self.weight(own + "down", 2 * HIDDEN, HIDDEN))
        return self.add("Add", x, down)

    def proto(self) -> onnx.ModelProto:
        def info(name: str, kind: int, *dims: int | str) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(name, kind, dims)

        cache = (1, GROUPS, self.room, WIDTH)
        inputs = [info("token", TensorProto.INT64, 1, 1), info("last", TensorProto.INT32, 1)]
        inputs += [info(name, TensorProto.FLOAT, *cache) for name in self.caches]
        outputs = [info("logits", TensorProto.FLOAT, 1, 1, WORDS)]
        outputs += [info(name.replace("past", "present"), TensorProto.FLOAT, *cache) for name in self.caches]
        typed = {n: w if w.dtype == np.int32 else w.astype(np.float32) for n, w in self.weights.items()}
        made = [numpy_helper.from_array(weight, name) for name, weight in typed.items()]
        graph = helper.make_graph(self.nodes, "llama", inputs, outputs, made)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def arrays(self) -> dict[str, Array]:
        """What is bound."""
        shape = (1, GROUPS, self.room, WIDTH)
        rng = np.random.default_rng(1)
        made: dict[str, Array] = {"token": np.array([[5]]), "last": np.array([self.room - 1], np.int32)}
        return made | {name: rng.standard_normal(shape, np.float32) for name in self.caches}


@contextlib.contextmanager
def copying() -> Iterator[None]:
    """While what is recorded makes new caches, by torch's own ops."""
    with decode_kernels.plain_ops(), mock.patch.object(sharing, "sharing", lambda *_: None):
        yield


def bound(model: onnx.ModelProto, arrays: Mapping[str, Array]) -> tuple[Callable[[], Any], torch.Tensor]:
    """A run of a binding that is recorded, and its logits."""
    binding = torch_ort_session.load(model).bind()
    tensors = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
    for name, tensor in tensors.items():
        if name.startswith("past"):
            binding.state(name, name.replace("past", "present"), tensor)
        else:
            binding.input(name, tensor)
    logits = torch.zeros(1, 1, WORDS)
    binding.output("logits", logits)
    for _ in range(4):
        binding.run()
    return binding.run, logits


def theirs(
    model: onnx.ModelProto, arrays: Mapping[str, Array], threads: int
) -> tuple[Callable[[], Any], Array]:
    """A run of onnxruntime's binding, whose caches are shared as well."""
    session = modelruns.onnxruntime_session(model.SerializeToString(), threads)
    binding = session.io_binding()
    logits = np.zeros((1, 1, WORDS), np.float32)
    for name, array in arrays.items():
        value = onnxruntime.OrtValue.ortvalue_from_numpy(array)
        binding.bind_ortvalue_input(name, value)
        if name.startswith("past"):
            binding.bind_ortvalue_output(name.replace("past", "present"), value)
    address = (logits.shape, logits.ctypes.data)
    binding.bind_output("logits", "cpu", 0, np.float32, *address)
    return partial(session.run_with_iobinding, binding), logits


def measure(room: int, threads: int, seconds: float, *, hidden: bool) -> Row:
    """A row of the table."""
    torch.set_num_threads(threads)
    llama = Llama(room, hidden=hidden)
    model, arrays = llama.proto(), llama.arrays()
    ours, found = bound(model, arrays)
    with copying():
        plain, _ = bound(model, arrays)
    other, wanted = theirs(model, arrays, threads)
    variants = {"ours": ours, "copying": plain, "onnxruntime": other}
    times = harness.interleave(variants, seconds=seconds, least=5, most=300, warmup=2)
    return {
        "model": "llama" if hidden else "attention alone",
        "room": room,
        "threads": threads,
        "microseconds": {name: timing.median * 1e6 for name, timing in times.items()},
        "over": {name: harness.ratio(times["ours"], times[name]) for name in ("copying", "onnxruntime")},
        "spread": times["ours"].spread,
        "error": relative_error(found.numpy(), wanted),
        "rounds": times["ours"].rounds,
    }


def judge(rows: Sequence[Row]) -> list[str]:
    """What misses its bound."""
    misses = []
    for row in rows:
        name = f"{row['model']}, {row['room']} rows, {row['threads']} thread(s)"
        if row["over"]["copying"] > 1.0:
            misses.append(f"{name}: {row['over']['copying']:.2f} x copying the caches")
        if not row["error"] <= ERROR:
            misses.append(f"{name}: error {row['error']:.1e} above {ERROR:.0e}")
    return misses


def text_of(rows: Sequence[Row]) -> str:
    """The table."""
    heads = (
        "a token of",
        "rows",
        "threads",
        "copying us",
        "ort",
        "ours",
        "spread",
        "over copying",
        "over ort",
        "error",
    )
    cells = [
        (
            row["model"],
            *(str(row[key]) for key in ("room", "threads")),
            *(f"{row['microseconds'][name]:.0f}" for name in ("copying", "onnxruntime", "ours")),
            f"±{row['spread']:.0%}",
            *(f"{row['over'][name]:.2f}x" for name in ("copying", "onnxruntime")),
            f"{row['error']:.1e}",
        )
        for row in rows
    ]
    return harness.table(heads, cells)


def main(argv: Sequence[str] | None = None) -> int:
    parser = harness.parser(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rooms", nargs="*", type=int, default=[256, 2048], help="rows of the caches")
    parser.add_argument("--threads", nargs="*", type=int, default=[1], help="thread counts (1)")
    parser.add_argument("--seconds", type=float, default=3.0, help="time for each row (3)")
    args = parser.parse_args(argv)
    rows = [
        measure(room, threads, args.seconds, hidden=hidden)
        for hidden in (False, True)
        for room in args.rooms
        for threads in args.threads
    ]
    return harness.finish("cached_decode", text=text_of(rows), rows=rows, misses=judge(rows), args=args)


if __name__ == "__main__":
    sys.exit(main())
