"""What a node costs beyond its arithmetic: 1,000 tiny nodes, each depending on the one before.

The same chain runs here, node by node ("ours") and with the default options ("replayed"), as straight torch
calls and in onnxruntime without optimisations, on one thread, interleaved, and the results are compared.
`--check` exits with 1 when a node run on its own costs more than 2.5 x what it costs in torch eager. Ratios
are of the fastest rounds, which a busy machine disturbs least.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import agreement
import harness
import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper

import torch_ort_session

BLOCKS = 50
ROWS, COLUMNS = 4, 8
BOUND = 2.5
TOLERANCE = 1e-4

Block = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def make_weights(seed: int = 0) -> list[Block]:
    """A bias, a scale and a square matrix for each block of nodes."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator) - 0.5

    return [(draw(COLUMNS), 1.0 + draw(COLUMNS), draw(COLUMNS, COLUMNS)) for _ in range(BLOCKS)]


def eager(blocks: Sequence[Block], x: torch.Tensor) -> torch.Tensor:
    """The chain as torch calls, one for each node of `make_model`, without gradients."""
    with torch.no_grad():
        for bias, scale, matrix in blocks:
            t = torch.add(x, bias)
            t = torch.mul(t, scale)
            t = torch.relu(t)
            t = torch.matmul(t, matrix)
            s = torch.sigmoid(t)
            t = torch.sub(t, s)
            m = torch.mean(t, dim=-1, keepdim=True)
            t = torch.sub(t, m)
            t = torch.reshape(t, (COLUMNS, ROWS))
            t = torch.tanh(t)
            t = torch.permute(t, (1, 0))
            t = torch.cat((t, s), dim=1)
            t = t[:, 4:12]
            t = torch.clamp(t, -0.9, 0.9)
            t = torch.unsqueeze(t, 0)
            t = torch.squeeze(t, 0)
            t = torch.neg(t)
            t = torch.exp(t)
            t = torch.div(t, scale)
            x = torch.sub(t, x)
    return x


def make_model(blocks: Sequence[Block]) -> onnx.ModelProto:
    """The chain as a model: x (4, 8) to y (4, 8), float32, opset 18."""
    constants: dict[str, np.ndarray] = {
        "tall": np.array([COLUMNS, ROWS]),
        "zero": np.array([0]),
        "one": np.array([1]),
        "four": np.array([4]),
        "twelve": np.array([12]),
        "low": np.array(-0.9, np.float32),
        "high": np.array(0.9, np.float32),
        "last": np.array([-1]),
    }
    nodes: list[onnx.NodeProto] = []

    def add(op: str, *inputs: str, **attributes: Any) -> str:
        output = f"t{len(nodes)}"
        nodes.append(helper.make_node(op, inputs, [output], name=f"{op}_{len(nodes)}", **attributes))
        return output

    x = "x"
    for index, block in enumerate(blocks):
        bias, scale, matrix = (f"{kind}{index}" for kind in ("bias", "scale", "matrix"))
        constants.update({bias: block[0].numpy(), scale: block[1].numpy(), matrix: block[2].numpy()})
        t = add("MatMul", add("Relu", add("Mul", add("Add", x, bias), scale)), matrix)
        s = add("Sigmoid", t)
        t = add("Sub", t, s)
        t = add("Sub", t, add("ReduceMean", t, "last", keepdims=1))
        t = add("Transpose", add("Tanh", add("Reshape", t, "tall")), perm=[1, 0])
        t = add("Slice", add("Concat", t, s, axis=1), "four", "twelve", "one")
        t = add("Clip", t, "low", "high")
        t = add("Squeeze", add("Unsqueeze", t, "zero"), "zero")
        t = add("Div", add("Exp", add("Neg", t)), scale)
        x = add("Sub", t, x)
    graph = helper.make_graph(
        nodes,
        "overhead",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [ROWS, COLUMNS])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [ROWS, COLUMNS])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(model)
    return model


def plain_onnxruntime(model: onnx.ModelProto, threads: int = 1) -> onnxruntime.InferenceSession:
    """onnxruntime on so many threads, running the nodes as they are."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def again(session: torch_ort_session.Session, feed: Mapping[str, torch.Tensor]) -> np.ndarray:
    """A result after other runs, which may come from a recording."""
    for shift in range(4):
        session.run(None, {name: value + shift for name, value in feed.items()})
    result: np.ndarray = session.run(None, feed)[0].numpy()
    return result


def measure(seconds: float) -> tuple[int, dict[str, harness.Timing], dict[str, agreement.Agreement]]:
    """The number of nodes, the times, and how far ours and torch's results are from onnxruntime's."""
    torch.set_num_threads(1)
    blocks = make_weights()
    model = make_model(blocks)
    ours = torch_ort_session.load(model, options=torch_ort_session.Options(capture="off"))
    replayed = torch_ort_session.load(model)
    theirs = plain_onnxruntime(model)
    x = torch.rand(ROWS, COLUMNS, generator=torch.Generator().manual_seed(1))
    feed, array = {"x": x}, {"x": x.numpy()}
    expected = theirs.run(None, array)
    found = {
        "ours": agreement.compare(["y"], [ours.run(None, feed)[0].numpy()], expected, TOLERANCE),
        "replayed": agreement.compare(["y"], [again(replayed, feed)], expected, TOLERANCE),
        "torch": agreement.compare(["y"], [eager(blocks, x).numpy()], expected, TOLERANCE),
    }
    times = harness.interleave(
        {
            "ours": partial(ours.run, None, feed),
            "replayed": partial(replayed.run, None, feed),
            "torch": partial(eager, blocks, x),
            "onnxruntime": partial(theirs.run, None, array),
        },
        seconds=seconds,
        most=100_000,
        warmup=10,
    )
    return len(model.graph.node), times, found


def main(argv: Sequence[str] | None = None) -> int:
    parser = harness.parser(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=5.0, help="time for the measurement (5)")
    args = parser.parse_args(argv)
    nodes, times, found = measure(args.seconds)
    base = times["torch"].fastest
    rows: list[Mapping[str, object]] = [
        {
            "runner": name,
            "nodes": nodes,
            "us_per_node": timing.median / nodes * 1e6,
            "over_torch": timing.fastest / base,
            "error": found[name].error if name in found else 0.0,
            **timing.as_json(),
        }
        for name, timing in times.items()
    ]
    misses = [f"{name}: {verdict.reason}" for name, verdict in found.items() if not verdict.holds]
    ratio = times["ours"].fastest / base
    if ratio > BOUND:
        misses.append(f"ours: a node costs {ratio:.2f} x torch eager, more than {BOUND}")
    cells = [
        (
            str(row["runner"]),
            f"{row['us_per_node']:.3f}",
            f"{times[str(row['runner'])].fastest / nodes * 1e6:.3f}",
            f"±{times[str(row['runner'])].spread:.0%}",
            f"{row['over_torch']:.2f}x",
            f"{row['error']:.1e}",
        )
        for row in rows
    ]
    title = f"{nodes} nodes in one chain, {times['torch'].rounds} interleaved rounds, 1 thread\n"
    text = title + harness.table(("runner", "µs a node", "fastest", "spread", "over torch", "error"), cells)
    return harness.finish("overhead", text=text, rows=rows, misses=misses, args=args)


if __name__ == "__main__":
    sys.exit(main())
