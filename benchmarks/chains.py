"""Chains of elementwise steps in one pass, beside the same steps one by one.

Each chain runs over arrays of several sizes: by the compiled op ("fused") and by torch's own calls, which
write into two buffers in turn ("unfused"); then as a model of one node a step, whose captures compute it in
one pass or node by node (`Options(fuse=False)`), and in onnxruntime. All are interleaved, on as many threads
as `--threads` says, and their results are compared. `--check` exits with 1 when the op, from 64 KB an array
up, takes longer than torch's calls, when the fused session takes longer than the other one, or when results
differ.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import harness
import modelruns
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

import torch_ort_session
from torch_ort_session import Options
from torch_ort_session.ops import native
from torch_ort_session.ops.native.chain import Code

BOUND = 1.0
NOISE = 1.05
"""What a session may take of the other one's time: most of a small one's is the same fixed cost."""
FROM_BYTES = 64 << 10
SIZES = [(1, 4096), (128, 3072), (32, 512, 768)]
NEAR = {torch.float32: 1e-6, torch.bfloat16: 2**-7}
"""How far results may be apart, as a share of the greatest number."""
FAR = 1e-5
"""As much, from onnxruntime, whose functions are others."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Chain:
    """A chain, as :func:`.chain` takes it.

    Attributes:
        name: What the table says.
        inputs: What each one is: "whole", a "row" of the last axis, or a "column" of one number a row.
        rows: A code and its registers each; every row but the first reads the one before it, and nobody else.
        constants: Registers behind the inputs.
    """

    name: str
    inputs: tuple[str, ...]
    rows: tuple[tuple[Code | int, ...], ...]
    constants: tuple[float, ...] = ()

    @property
    def program(self) -> list[int]:
        """The rows, one behind the other."""
        return [int(number) for row in self.rows for number in (*row, *[-1] * (4 - len(row)))]


CHAINS = [
    Chain(
        "Gelu",
        ("whole",),
        ((Code.DIV, 0, 1), (Code.ERF, 4), (Code.ADD, 5, 2), (Code.MUL, 0, 6), (Code.MUL, 7, 3)),
        (2**0.5, 1.0, 0.5),
    ),
    Chain("SiLU gate", ("whole", "whole"), ((Code.SIGMOID, 0), (Code.MUL, 0, 2), (Code.MUL, 3, 1))),
    Chain(
        "tanh Gelu",
        ("whole",),
        (
            (Code.CUBE, 0),
            (Code.MUL, 5, 1),
            (Code.ADD, 0, 6),
            (Code.MUL, 7, 2),
            (Code.TANH, 8),
            (Code.ADD, 9, 3),
            (Code.MUL, 0, 10),
            (Code.MUL, 11, 4),
        ),
        (0.044715, (2 / torch.pi) ** 0.5, 1.0, 0.5),
    ),
    Chain("scale, bias, Relu", ("whole", "row", "row"), ((Code.MUL, 0, 1), (Code.ADD, 3, 2), (Code.RELU, 4))),
    Chain(
        "normalisation",
        ("whole", "column", "column", "row", "row"),
        ((Code.SUB, 0, 1), (Code.DIV, 5, 2), (Code.MUL, 6, 3), (Code.ADD, 7, 4)),
    ),
]
PLAIN: dict[Code, Callable[..., Tensor]] = {
    Code.ADD: torch.add,
    Code.SUB: torch.sub,
    Code.MUL: torch.mul,
    Code.DIV: torch.div,
    Code.ERF: torch.erf,
    Code.TANH: torch.tanh,
    Code.SIGMOID: torch.sigmoid,
    Code.RELU: partial(torch.clamp_min, min=0),
    Code.CUBE: partial(torch.pow, exponent=3),
}
NODES = {Code.CUBE: "Pow"} | {code: code.name.capitalize() for code in PLAIN if code is not Code.CUBE}


def feeds(one: Chain, shape: Sequence[int], dtype: torch.dtype) -> list[Tensor]:
    """Numbers for a chain's inputs; those of a column are above 0."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"whole": [*shape], "row": [shape[-1]], "column": [*shape[:-1], 1]}
    made = [torch.randn(shapes[kind], generator=generator) for kind in one.inputs]
    return [
        (x.abs() + 0.5 if kind == "column" else x).to(dtype) for x, kind in zip(made, one.inputs, strict=True)
    ]


def steps(one: Chain, inputs: Sequence[Tensor], out: Tensor) -> Callable[[], None]:
    """Torch's own calls for it; the last one writes into `out`."""
    buffers = [torch.empty_like(out), torch.empty_like(out)]
    registers: list[Tensor | float] = [*inputs, *one.constants]
    calls = []
    for number, (code, *operands) in enumerate(one.rows):
        into = out if number + 1 == len(one.rows) else buffers[number % 2]
        calls.append(partial(PLAIN[Code(code)], *(registers[each] for each in operands), out=into))
        registers.append(into)

    def run() -> None:
        for call in calls:
            call()

    return run


def model(one: Chain, shape: Sequence[int]) -> onnx.ModelProto:
    """It as a graph of one node a row, of float32."""
    names = [f"x{i}" for i in range(len(one.inputs))] + [f"c{i}" for i in range(len(one.constants))]
    held = [
        numpy_helper.from_array(torch.tensor(value).numpy(), f"c{i}") for i, value in enumerate(one.constants)
    ]
    held.append(numpy_helper.from_array(torch.tensor(3.0).numpy(), "three"))
    nodes = []
    for number, (code, *operands) in enumerate(one.rows):
        taken = [names[each] for each in operands] + ["three"] * (code is Code.CUBE)
        names.append("y" if number + 1 == len(one.rows) else f"t{number}")
        nodes.append(helper.make_node(NODES[Code(code)], taken, [names[-1]], name=f"n{number}"))
    inputs = [
        helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, list(x.shape))
        for i, x in enumerate(feeds(one, shape, torch.float32))
    ]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [*shape])
    graph = helper.make_graph(nodes, "chain", inputs, [y], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def distance(got: Tensor, wanted: Tensor) -> float:
    """The greatest difference, as a share of the greatest number."""
    return float((got.double() - wanted.double()).abs().max() / wanted.double().abs().max())


def of_op(one: Chain, shape: Sequence[int], dtype: torch.dtype, seconds: float) -> Row:
    """The op beside torch's calls."""
    inputs = feeds(one, shape, dtype)
    fused, plain = torch.empty(*shape, dtype=dtype), torch.empty(*shape, dtype=dtype)
    run = steps(one, inputs, plain)
    if native.device_op("elementwise_chain", *inputs) is None:
        raise RuntimeError("the extension has no chains for these tensors")
    native_op = torch.ops.torch_ort_session.elementwise_chain.out
    op = partial(native_op, inputs, one.program, one.constants, out=fused)
    op()
    run()
    error = distance(fused, plain)
    times = harness.interleave({"fused": op, "unfused": run}, seconds=seconds, least=20, most=500)
    return {
        "chain": one.name,
        "shape": [*shape],
        "dtype": str(dtype).removeprefix("torch."),
        "bytes": plain.nbytes,
        "errors": {"unfused": error},
        "bounds": {"time": BOUND, "unfused": NEAR[dtype]},
        "times": times,
    }


def of_session(one: Chain, shape: Sequence[int], threads: int, seconds: float) -> Row:
    """A model of it with and without fusing, and in onnxruntime."""
    proto = model(one, shape)
    feed = {f"x{i}": x for i, x in enumerate(feeds(one, shape, torch.float32))}
    arrays = {name: x.numpy() for name, x in feed.items()}
    fused = torch_ort_session.load(proto)
    plain = torch_ort_session.load(proto, options=Options(fuse=False))
    other = modelruns.onnxruntime_session(proto.SerializeToString(), threads)
    for session in (fused, plain):
        modelruns.warm(session, feed)
    got = fused.run(None, feed)[0]
    errors = {
        "unfused": distance(got, plain.run(None, feed)[0]),
        "onnxruntime": distance(got, torch.from_numpy(other.run(None, arrays)[0])),
    }
    times = harness.interleave(
        {
            "fused": partial(fused.run, None, feed),
            "unfused": partial(plain.run, None, feed),
            "onnxruntime": partial(other.run, None, arrays),
        },
        seconds=seconds,
        least=20,
        most=500,
    )
    return {
        "chain": one.name,
        "shape": [*shape],
        "dtype": "session",
        "bytes": got.nbytes,
        "errors": errors,
        "bounds": {"time": NOISE, "unfused": NEAR[torch.float32], "onnxruntime": FAR},
        "times": times,
    }


def label(row: Row) -> str:
    """What a row is called."""
    return f"{row['chain']} {'x'.join(map(str, row['shape']))} {row['dtype']}"


def share(row: Row, name: str) -> float:
    """What it takes fused of the time that it takes otherwise."""
    return harness.ratio(row["times"]["fused"], row["times"][name])


def judge(rows: Sequence[Row]) -> list[str]:
    """What misses its bound."""
    misses = []
    for row in rows:
        taken, bounds = share(row, "unfused"), row["bounds"]
        if row["bytes"] >= FROM_BYTES and taken > bounds["time"]:
            misses.append(f"{label(row)}: {taken:.2f} x the time unfused, above {bounds['time']:.2f}")
        misses += [
            f"{label(row)}: {error:.1e} from what it is {name}, above {bounds[name]:.1e}"
            for name, error in row["errors"].items()
            if not error <= bounds[name]
        ]
    return misses


def describe(rows: Sequence[Row]) -> str:
    """The table."""
    names = ["fused", "unfused", "onnxruntime"]
    lines = []
    for row in rows:
        times = row["times"]
        cells = [f"{times[name].fastest * 1e6:.0f}" if name in times else "-" for name in names]
        shares = [f"{share(row, name):.2f}" if name in times else "-" for name in names[1:]]
        lines.append([label(row), *cells, *shares])
    return harness.table(["microseconds", *names, "fused / unfused", "fused / onnxruntime"], lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = harness.parser(__doc__ or "")
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each row")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="chains whose name has this in it")
    parser.add_argument("--largest", type=int, default=1 << 24, help="no arrays of more elements")
    args = parser.parse_args(arguments)
    chosen = [one for one in CHAINS if args.only.lower() in one.name.lower()]
    if not chosen:
        parser.error(f"no chain's name has {args.only!r} in it")
    if not native.status().usable:
        parser.error(f"native ops: {native.status().reason}")
    torch.set_num_threads(args.threads)
    rows: list[Row] = []
    for shape in SIZES:
        if torch.Size(shape).numel() > args.largest:
            continue
        for one in chosen:
            rows += [of_op(one, shape, dtype, args.seconds) for dtype in NEAR]
            rows.append(of_session(one, shape, args.threads, args.seconds))
    kept = [
        row | {"times": {name: timing.as_json() for name, timing in row["times"].items()}} for row in rows
    ]
    return harness.finish("chains", text=describe(rows), rows=kept, misses=judge(rows), args=args)


if __name__ == "__main__":
    sys.exit(main())
