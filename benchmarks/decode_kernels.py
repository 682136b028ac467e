"""Kernels of decoders beside the plain torch ops that do the same, and beside onnxruntime.

Each row of the table is a model of several nodes in a line, each of which gets the result of the one
before, at the sizes of one new token and of a prompt. It is captured twice: with the compiled kernels, and
with torch's own ops alone, as a library without them would record it. onnxruntime runs the same model where
it can; all three are timed in turn.

`--check` exits with 1 when a kernel takes longer than the plain ops (5% are noise), or when a result is
further from onnxruntime's, or from that of the plain ops where it has none, than it may be. Times are
medians; ratios are medians of the ratios within each round.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import harness
import ml_dtypes
import modelruns
import numpy as np
import onnx
import torch
from agreement import relative_error
from onnx import TensorProto, helper, numpy_helper

import torch_ort_session
from torch_ort_session.ops import native

MICROSOFT = "com.microsoft"
SLOWER = 1.05
ERRORS = {"float32": 2e-5, "float16": 1e-2, "bfloat16": 4e-2}
"""How far results of one node may lie apart, of the largest magnitude."""

Array = np.ndarray[Any, np.dtype[Any]]
Row = dict[str, Any]
Make = Callable[[np.random.Generator], Array]


def floats(*shape: int) -> Make:
    """Floats of the row's type."""
    return lambda rng: rng.standard_normal(shape).astype(np.float32)


def counting(length: int) -> Make:
    """Positions of a prompt of one sample."""
    return lambda rng: np.arange(length, dtype=np.int64)[None]


def angles(of: Callable[[Array], Array], length: int, half: int) -> Make:
    """Cosines or sines of the angles of positions."""
    place, pace = np.arange(length)[:, None], 10000.0 ** (-np.arange(half) / half)
    return lambda rng: of(place * pace).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """A node, of which a row has several in a line.

    Attributes:
        op: Operator name.
        sizes: The sizes, for people.
        inputs: What its inputs are; floats become those of the row's type. The first is fed to the first
            node only, the others to all of them. None is left out.
        attributes: Attributes.
        domain: Operator domain.
        nodes: How many there are.
        dtypes: The types of its rows.
        theirs: The types that onnxruntime's CPU has it for.
        weights: The place from which on inputs are weights of the model, and not fed.
    """

    op: str
    sizes: str
    inputs: Sequence[Make | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    domain: str = MICROSOFT
    nodes: int = 16
    dtypes: Sequence[str] = ("float32", "float16", "bfloat16")
    theirs: Sequence[str] = ("float32",)
    weights: int = 99

    @property
    def name(self) -> str:
        return f"{self.op} {self.sizes}"


def norms(rows: int, width: int) -> list[Case]:
    sizes, x, row = f"{rows} x {width}", floats(1, rows, width), floats(width)
    near = {"epsilon": 1e-5}
    both = ("float32", "float16")
    return [
        Case("RMSNormalization", sizes, [x, row], near, domain="", theirs=()),
        Case("SimplifiedLayerNormalization", sizes, [x, row], near, domain="", theirs=both),
        Case("SkipSimplifiedLayerNormalization", sizes, [x, x, row], near, theirs=both),
    ]


def rotations(length: int, heads: int, width: int) -> list[Case]:
    sizes, x = f"{length} x {heads} x {width}", floats(1, length, heads * width)
    given = [x, counting(length), *(angles(of, length, width // 2) for of in (np.cos, np.sin))]
    both = ("float32", "float16")
    return [
        Case("RotaryEmbedding", sizes, given, theirs=both),
        Case("RotaryEmbedding", f"{sizes} interleaved", given, {"interleaved": 1}, theirs=both),
    ]


def gates(rows: int, width: int) -> list[Case]:
    sizes, x, row = f"{rows} x {width}", floats(1, rows, width), floats(width)
    # Of many rows one node alone, as between two products: in a line they would find them in a cache.
    nodes = 16 if rows == 1 else 1
    return [
        Case("QuickGelu", sizes, [x], nodes=nodes),
        Case("FastGelu", sizes, [x, row], nodes=nodes, theirs=("float32", "float16")),
        Case("BiasGelu", sizes, [x, row], nodes=nodes, dtypes=tuple(ERRORS) if rows == 1 else ("float32",)),
        Case("SwiGLU", sizes, [x, x], nodes=nodes, theirs=()),
        Case("BiasSplitGelu", sizes, [floats(1, rows, 2 * width), floats(2 * width)], nodes=1, theirs=()),
    ]


def scaled(factor: float, *shape: int) -> Make:
    """Floats that are that much smaller."""
    return lambda rng: (rng.standard_normal(shape) * factor).astype(np.float32)


def codes(*shape: int) -> Make:
    """Two numbers of 4 bits a byte."""
    return lambda rng: rng.integers(0, 256, shape, dtype=np.uint8)


def mixtures(rows: int, width: int, experts: int) -> list[Case]:
    """Mixtures of which each token takes two experts."""
    sizes = f"{rows} x {width}, 2 of {experts} experts"
    given, square = [scaled(1.0, rows, width), floats(rows, experts)], (experts, width, width)
    weight, scales = scaled(width**-0.5, *square), scaled(width**-0.5 / 4, experts, width)
    packed = codes(experts, width, width // 2)
    both = {"activation_type": "silu", "k": 2, "normalize_routing_weights": 1}
    return [
        Case("MoE", sizes, [*given, weight, None, weight], both, nodes=1, dtypes=("float32",), weights=2),
        Case(
            "QMoE",
            sizes,
            [*given, packed, scales, None, packed, scales],
            {**both, "expert_weight_bits": 4},
            nodes=1,
            dtypes=("float32",),
            weights=2,
        ),
    ]


def integers(*shape: int) -> Make:
    """Numbers of 8 bits with a sign."""
    return lambda rng: rng.integers(-128, 128, shape, dtype=np.int8)


def whole(*numbers: int) -> Make:
    """Numbers of 32 bits."""
    return lambda rng: np.array(numbers, np.int32)


def scalar(number: int) -> Make:
    """A number of 32 bits without an axis."""
    return lambda rng: np.array(number, np.int32)


def weight(number: float) -> Make:
    """One float that stays float32 in every row."""
    return lambda rng: np.array([number], np.float32)


def steps(rows: int, heads: int, groups: int, width: int) -> list[Case]:
    """A token over a cache of many rows: floats, integers, with normalized heads, and of a window.

    Nobody asks for new caches; `cached_decode.py` has them, and onnxruntime, which makes them in any case.
    """
    sizes = f"{rows} x {heads} heads of {width}, {groups} of keys"
    new, row, numbers = (
        floats(1, 1, groups * width),
        floats(width),
        {"num_heads": heads, "kv_num_heads": groups},
    )
    both = {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR"}

    def case(
        of: str, cache: Make, *rest: Make | None, dtypes: Sequence[str] = tuple(ERRORS), **more: Any
    ) -> Case:
        given = [floats(1, 1, heads * width), new, new, cache, cache, whole(rows - 1), scalar(rows), *rest]
        return Case(
            "GroupQueryAttention", sizes + of, given, numbers | more, nodes=4, dtypes=dtypes, theirs=()
        )

    held, single = floats(1, groups, rows, width), ("float32",)
    scales = [*[None] * 5, weight(0.02), weight(0.02)]
    packed = codes(1, groups, rows, width // 2)
    byte = integers(1, groups, rows, width)
    return [
        case("", held),
        case(", normalized", held, *[None] * 7, row, row, dtypes=single),
        case(", 8 bits", byte, *scales, dtypes=single, kv_cache_bit_width=8, **both),
        case(", 4 bits", packed, *scales, dtypes=single, kv_cache_bit_width=4, **both),
        case(", rolling", held, dtypes=single, sliding_window_cache=1, local_window_size=rows // 2),
    ]


CASES = (
    *steps(4096, 16, 16, 128),
    *steps(4096, 32, 8, 128),
    *norms(1, 4096),
    *norms(512, 4096),
    *rotations(1, 32, 128),
    *rotations(512, 32, 128),
    *gates(1, 11008),
    *gates(512, 11008),
    *mixtures(1, 1024, 32),
    *mixtures(4, 1024, 32),
)


def make_inputs(case: Case, dtype: str, seed: int = 0) -> list[Array | None]:
    """The inputs of a row, by place."""
    rng = np.random.default_rng(seed)
    made = [None if make is None else make(rng) for make in case.inputs]
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    return [a.astype(kind) if a is not None and a.dtype == np.float32 else a for a in made]


def make_model(case: Case, inputs: Sequence[Array | None]) -> onnx.ModelProto:
    """Nodes in a line; all inputs but weights are fed."""
    names = ["" if value is None else f"x{place}" for place, value in enumerate(inputs)]
    present = [(name, value) for name, value in zip(names, inputs, strict=True) if value is not None]
    ports = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in present
        if name in names[: case.weights]
    ]
    weights = [
        numpy_helper.from_array(value, name) for name, value in present if name in names[case.weights :]
    ]
    nodes, last = [], names[0]
    for place in range(case.nodes):
        given = [last, *names[1:]]
        last = f"y{place}"
        nodes.append(helper.make_node(case.op, given, [last], domain=case.domain, **case.attributes))
    end = helper.make_tensor_value_info(last, TensorProto.UNDEFINED, None)
    if inputs[0] is not None:
        end = helper.make_tensor_value_info(last, ports[0].type.tensor_type.elem_type, None)
    graph = helper.make_graph(nodes, "line", ports, [end], weights)
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@contextlib.contextmanager
def plain_ops() -> Iterator[None]:
    """While what is recorded is recorded as without compiled kernels; checks of indices stay."""
    doors = {name: getattr(native, name) for name in ("cpu_op", "device_op")}
    for name in doors:
        setattr(native, name, lambda *given, **more: None)
    try:
        yield
    finally:
        for name, door in doors.items():
            setattr(native, name, door)


def tensor_of(array: Array) -> torch.Tensor:
    """An array as a tensor, also one of bfloat16."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def measure(case: Case, dtype: str, threads: int, seconds: float) -> Row:
    """A row of the table."""
    inputs = make_inputs(case, dtype)
    model = make_model(case, inputs)
    arrays = {f"x{place}": value for place, value in enumerate(inputs[: case.weights]) if value is not None}
    feed = {name: tensor_of(value) for name, value in arrays.items()}
    torch.set_num_threads(threads)
    ours, plain = torch_ort_session.load(model), torch_ort_session.load(model)
    modelruns.warm(ours, feed)
    with plain_ops():
        modelruns.warm(plain, feed)
    variants: dict[str, Callable[[], Any]] = {
        "ours": partial(ours.run, None, feed),
        "plain": partial(plain.run, None, feed),
    }
    if dtype in case.theirs:
        theirs = modelruns.onnxruntime_session(model.SerializeToString(), threads)
        variants["onnxruntime"] = partial(theirs.run, None, arrays)
    times = harness.interleave(variants, seconds=seconds, least=5, most=300, warmup=2)
    results = {name: np.asarray(plainly(run()[0])) for name, run in variants.items()}
    wanted = results.get("onnxruntime", results["plain"])
    errors = {name: relative_error(result, wanted) for name, result in results.items()}
    return row_of(case, dtype, threads, times, errors)


def plainly(result: Any) -> Array:
    """A result as float32."""
    tensor = result if isinstance(result, torch.Tensor) else torch.from_numpy(result)
    made: Array = tensor.to(torch.float32).numpy()
    return made


def row_of(
    case: Case,
    dtype: str,
    threads: int,
    times: Mapping[str, harness.Timing],
    errors: Mapping[str, float],
) -> Row:
    """What is shown and judged of one kernel."""
    ours = times["ours"]
    others = {name: timing for name, timing in times.items() if name != "ours"}
    return {
        "kernel": case.name,
        "dtype": dtype,
        "threads": threads,
        "microseconds": {name: timing.median * 1e6 / case.nodes for name, timing in times.items()},
        "over": {name: harness.ratio(ours, timing) for name, timing in others.items()},
        "errors": dict(errors),
        "error_bound": ERRORS[dtype] * case.nodes**0.5,
        "spread": ours.spread,
        "rounds": ours.rounds,
    }


def judge(rows: Sequence[Row]) -> list[str]:
    """What misses its bound."""
    misses = []
    for row in rows:
        name = f"{row['kernel']}, {row['dtype']}, {row['threads']} thread(s)"
        slower = row["over"]["plain"]
        if slower > SLOWER:
            misses.append(f"{name}: {slower:.2f} x the plain ops, above {SLOWER}")
        error = row["errors"]["ours"]
        if not error <= row["error_bound"]:
            misses.append(f"{name}: error {error:.1e} above {row['error_bound']:.0e}")
    return misses


def text_of(rows: Sequence[Row]) -> str:
    """The table."""

    def cell(row: Row, part: str, name: str, form: str) -> str:
        return format(row[part][name], form) if name in row[part] else ""

    cells = [
        (
            row["kernel"],
            row["dtype"],
            str(row["threads"]),
            *(cell(row, "microseconds", name, ".1f") for name in ("plain", "onnxruntime", "ours")),
            f"±{row['spread']:.0%}",
            cell(row, "over", "plain", ".2f") + "x",
            cell(row, "over", "onnxruntime", ".2f"),
            *(cell(row, "errors", name, ".1e") for name in ("plain", "ours")),
        )
        for row in rows
    ]
    heads = ("one node", "dtype", "threads", "plain us", "ort", "ours", "spread", "over plain", "over ort")
    return harness.table((*heads, "plain's error", "our error"), cells)


def main(argv: Sequence[str] | None = None) -> int:
    parser = harness.parser(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="", help="kernels whose name holds this text (all)")
    parser.add_argument("--dtypes", nargs="*", default=list(ERRORS), help="types of the rows (all)")
    parser.add_argument("--threads", nargs="*", type=int, default=[1], help="thread counts (1)")
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each row (1)")
    args = parser.parse_args(argv)
    rows = [
        measure(case, dtype, threads, args.seconds)
        for case in CASES
        if args.only in case.name
        for dtype in case.dtypes
        if dtype in args.dtypes
        for threads in args.threads
    ]
    return harness.finish("decode_kernels", text=text_of(rows), rows=rows, misses=judge(rows), args=args)


if __name__ == "__main__":
    sys.exit(main())
