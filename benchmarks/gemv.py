"""One row times weights that are read once, as a decode step does: how fast, and how right.

Each row of the table is a model of several products with the same row, whose weights take at least 256 MB
together, so that no cache holds them: weights of float32 (MatMul, and Gemm with a transposed one) and of
bfloat16, of 8 and of 4 bits (MatMulNBits, blocks of 32) at accuracy levels 0, 1 and 4. It runs here, as torch
calls and in onnxruntime (which has no bfloat16), on 1 and 2 threads, interleaved. Beside them the same number
of bytes is read, by the fastest of some of torch's reductions. torch's own products with weights of few bits
take others of the same size: 8 bits have a scale a row there.

`--check` exits with 1 when floats are read at less than 80% of that pace, when a product with few bits takes
longer than onnxruntime's at the same accuracy level (5% are noise), or when a result is further from float64
than it may be. Times are medians; ratios are medians of the ratios within each round. `--cpu-time` counts the
time that the process computes, on one thread: what else runs on the machine then takes nothing but its share
of the memory.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import harness
import ml_dtypes
import modelruns
import numpy as np
import onnx
import torch
from agreement import relative_error
from onnx import TensorProto, helper

import torch_ort_session

SIDE = 4096
"""Rows and columns of each weight."""
BYTES = 256 << 20
BLOCK = 32
READ_BOUND = 0.8
SLOWER = 1.05
ERRORS = {"float32": 1e-5, "bfloat16": 1e-2}
COARSE = 3e-2
"""Error of a result whose row was rounded to 8 bits."""

Row = dict[str, Any]
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Case:
    """One kind of weight.

    Attributes:
        name: What the table says.
        bits: Of a number of the weight.
        op: The op that multiplies by it.
        level: Its accuracy level, for MatMulNBits.
        dtype: Of the row and the result.
    """

    name: str
    bits: int
    op: str
    level: int = 0
    dtype: str = "float32"

    @property
    def quantized(self) -> bool:
        return self.op == "MatMulNBits"

    @property
    def error(self) -> float:
        """How far from float64 a result may be, of the largest magnitude."""
        return COARSE if self.level == 4 else ERRORS[self.dtype]


CASES = (
    Case("float32, MatMul", 32, "MatMul"),
    Case("float32, Gemm transposed", 32, "Gemm"),
    Case("bfloat16, MatMul", 16, "MatMul", dtype="bfloat16"),
    *(
        Case(f"{bits} bits, level {level}", bits, "MatMulNBits", level)
        for bits in (8, 4)
        for level in (0, 1, 4)
    ),
)


@dataclass(frozen=True)
class Weight:
    """A weight as its model holds it: a matrix, or codes [side, blocks, bytes], scales [side, blocks]."""

    matrix: Array
    scales: Array | None = None

    @property
    def nbytes(self) -> int:
        return self.matrix.nbytes + (0 if self.scales is None else self.scales.nbytes)


def make_weights(case: Case, side: int, least: int) -> list[Weight]:
    """Random weights of one kind, of at least so many bytes together."""
    rng = np.random.default_rng(case.bits)

    def one() -> Weight:
        if case.quantized:
            blocks = side // BLOCK
            codes = rng.integers(0, 256, (side, blocks, BLOCK * case.bits // 8), np.uint8)
            return Weight(codes, rng.uniform(0.01, 0.02, (side, blocks)).astype(np.float32))
        plain = rng.uniform(-1, 1, (side, side)).astype(np.float32)
        return Weight(plain.astype(ml_dtypes.bfloat16) if case.dtype == "bfloat16" else plain)

    made = [one()]
    while sum(weight.nbytes for weight in made) < least:
        made.append(one())
    return made


def expected(case: Case, weight: Weight, x: Array) -> Array:
    """One product in float64."""
    wide = x.astype(np.float64)
    if weight.scales is None:
        matrix = weight.matrix.astype(np.float64)
        return wide @ (matrix.T if case.op == "Gemm" else matrix)
    flat = weight.matrix.reshape(len(weight.matrix), -1)
    codes = np.stack([flat & 15, flat >> 4], -1).reshape(len(flat), -1) if case.bits == 4 else flat
    numbers = codes.astype(np.float64) - (1 << (case.bits - 1))
    return wide @ (numbers * np.repeat(weight.scales, BLOCK, 1)).T


def make_model(case: Case, weights: Sequence[Weight], side: int) -> onnx.ModelProto:
    """The products of x [1, side] with each weight."""
    kind = TensorProto.BFLOAT16 if case.dtype == "bfloat16" else TensorProto.FLOAT
    nodes, constants, outputs = [], [], []

    def constant(name: str, array: Array, code: int) -> str:
        constants.append(helper.make_tensor(name, code, array.shape, array.tobytes(), raw=True))
        return name

    for i, weight in enumerate(weights):
        code = TensorProto.UINT8 if case.quantized else kind
        inputs = ["x", constant(f"w{i}", weight.matrix, code)]
        attributes: dict[str, Any] = {"transB": 1} if case.op == "Gemm" else {}
        if weight.scales is not None:
            inputs.append(constant(f"s{i}", weight.scales, TensorProto.FLOAT))
            attributes = {"K": side, "N": side, "bits": case.bits, "block_size": BLOCK}
            attributes |= {"accuracy_level": case.level, "domain": "com.microsoft"}
        nodes.append(helper.make_node(case.op, inputs, [f"y{i}"], **attributes))
        outputs.append(helper.make_tensor_value_info(f"y{i}", kind, [1, side]))
    graph = helper.make_graph(
        nodes, "gemv", [helper.make_tensor_value_info("x", kind, [1, side])], outputs, constants
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def tensor_of(array: Array) -> torch.Tensor:
    """An array as a tensor, also one of bfloat16."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def torch_calls(case: Case, weights: Sequence[Weight], x: torch.Tensor) -> Callable[[], object] | None:
    """The products by torch, None where it has none of this kind."""
    if not case.quantized:
        matrices = [tensor_of(weight.matrix) for weight in weights]
        if case.op == "Gemm":
            matrices = [matrix.t() for matrix in matrices]
        return lambda: [torch.mm(x, matrix) for matrix in matrices]
    side = x.shape[1]
    try:
        if case.bits == 8:
            packed = [tensor_of(w.matrix).reshape(side, side).view(torch.int8) for w in weights]
            scale = torch.ones(side, dtype=x.dtype)
            call = partial(torch.ops.aten._weight_int8pack_mm, x)
            variant = [partial(call, matrix, scale) for matrix in packed]
        else:
            half = [torch.randint(0, 16, (side, side), dtype=torch.int32) for _ in weights[:1]]
            convert = torch.ops.aten._convert_weight_to_int4pack_for_cpu
            packed = [convert(half[0], 1) for _ in weights]
            scales = torch.ones(side // BLOCK, side, 2, dtype=x.dtype)
            call = partial(torch.ops.aten._weight_int4pack_mm_for_cpu, x)
            variant = [partial(call, matrix, BLOCK, scales) for matrix in packed]
        variant[0]()
    except (AttributeError, RuntimeError):
        return None
    return lambda: [product() for product in variant]


def readers(nbytes: int) -> dict[str, Callable[[], object]]:
    """Ways to read so many bytes."""
    memory = torch.rand(nbytes // 4)
    return {"read, dot": partial(torch.dot, memory, memory), "read, sum": partial(torch.sum, memory)}


def measure(
    case: Case,
    threads: Sequence[int],
    seconds: float,
    side: int,
    least: int,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Row]:
    """A row for each number of threads."""
    weights = make_weights(case, side, least)
    nbytes = sum(weight.nbytes for weight in weights)
    x = np.random.default_rng(0).uniform(-1, 1, (1, side)).astype(np.float32)
    model = make_model(case, weights, side)
    feed = {"x": tensor_of(x.astype(ml_dtypes.bfloat16) if case.dtype == "bfloat16" else x)}
    rows: list[Row] = []
    with torch.no_grad():
        session = torch_ort_session.load(model)
        others = torch_calls(case, weights, feed["x"])
        reading = readers(nbytes)
        for count in threads:
            torch.set_num_threads(count)
            modelruns.warm(session, feed)
            variants: dict[str, Callable[[], object]] = {"ours": partial(session.run, None, feed)}
            theirs = None
            if case.dtype == "float32":
                theirs = modelruns.onnxruntime_session(model.SerializeToString(), count)
                variants["onnxruntime"] = partial(theirs.run, None, {"x": x})
            if others is not None:
                variants["torch"] = others
            times = harness.interleave(
                variants | reading, seconds=seconds, least=5, most=99, warmup=1, clock=clock
            )
            results = {"ours": session.run(None, feed)[0].to(torch.float32).numpy()}
            if theirs is not None:
                results["onnxruntime"] = theirs.run(["y0"], {"x": x})[0]
            wanted = expected(case, weights[0], feed["x"].to(torch.float32).numpy())
            errors = {name: relative_error(result, wanted) for name, result in results.items()}
            rows.append(row_of(case, count, nbytes, times, errors))
            del theirs, variants
            gc.collect()
    return rows


def row_of(
    case: Case,
    threads: int,
    nbytes: int,
    times: Mapping[str, harness.Timing],
    errors: Mapping[str, float],
) -> Row:
    """What is shown and judged of one kind of weight on so many threads."""
    reading = {name: timing for name, timing in times.items() if name.startswith("read")}
    best = min(reading.values(), key=lambda timing: timing.median)
    ours = times["ours"]
    return {
        "weight": case.name,
        "threads": threads,
        "mbytes": nbytes / 1e6,
        "gb_per_s": {
            **{name: nbytes / t.median / 1e9 for name, t in times.items() if name not in reading},
            "read": nbytes / best.median / 1e9,
        },
        "of_read": harness.paired(best, ours),
        "over_onnxruntime": harness.paired(ours, times["onnxruntime"]) if "onnxruntime" in times else None,
        "errors": dict(errors),
        "spread": ours.spread,
        "rounds": ours.rounds,
        "quantized": case.quantized,
        "error_bound": case.error,
    }


def judge(rows: Sequence[Row]) -> list[str]:
    """What misses its bound."""
    misses = []
    for row in rows:
        name = f"{row['weight']}, {row['threads']} thread(s)"
        if not row["quantized"] and row["of_read"] < READ_BOUND:
            misses.append(f"{name}: {row['of_read']:.0%} of the read bandwidth, below {READ_BOUND:.0%}")
        ratio = row["over_onnxruntime"]
        if row["quantized"] and ratio is not None and ratio > SLOWER:
            misses.append(f"{name}: {ratio:.2f} x onnxruntime, above {SLOWER}")
        error = row["errors"]["ours"]
        if not error <= row["error_bound"]:
            misses.append(f"{name}: error {error:.1e} above {row['error_bound']:.0e}")
    return misses


def text_of(rows: Sequence[Row]) -> str:
    """The table."""

    def pace(row: Row, name: str) -> str:
        return f"{row['gb_per_s'][name]:.1f}" if name in row["gb_per_s"] else ""

    def error(row: Row, name: str) -> str:
        return f"{row['errors'][name]:.1e}" if name in row["errors"] else ""

    cells = [
        (
            row["weight"],
            str(row["threads"]),
            f"{row['mbytes']:.0f}",
            *(pace(row, name) for name in ("torch", "onnxruntime", "ours", "read")),
            f"±{row['spread']:.0%}",
            f"{row['of_read']:.0%}",
            "" if row["over_onnxruntime"] is None else f"{row['over_onnxruntime']:.2f}x",
            error(row, "onnxruntime"),
            error(row, "ours"),
        )
        for row in rows
    ]
    heads = ("weights, one row", "threads", "MB", "torch GB/s", "ort", "ours", "read", "spread")
    return harness.table((*heads, "of read", "over ort", "ort's error", "our error"), cells)


def main(argv: Sequence[str] | None = None) -> int:
    parser = harness.parser(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="", help="weights whose name holds this text (all)")
    parser.add_argument("--threads", nargs="*", type=int, default=[1, 2], help="thread counts (1 2)")
    parser.add_argument("--cpu-time", action="store_true", help="count CPU time, on one thread")
    parser.add_argument("--seconds", type=float, default=6.0, help="time for each row (6)")
    parser.add_argument("--side", type=int, default=SIDE, help=f"rows and columns of a weight ({SIDE})")
    parser.add_argument("--mbytes", type=int, default=BYTES >> 20, help="of the weights of a row (256)")
    args = parser.parse_args(argv)
    threads, clock = ([1], time.process_time) if args.cpu_time else (args.threads, time.perf_counter)
    rows: list[Row] = []
    for case in CASES:
        if args.only in case.name:
            rows += measure(case, threads, args.seconds, args.side, args.mbytes << 20, clock)
    return harness.finish("gemv", text=text_of(rows), rows=rows, misses=judge(rows), args=args)


if __name__ == "__main__":
    sys.exit(main())
