"""What a replay saves, in time: tiny nodes, real models and the fixed cost of a run.

Three tables from one run, everything interleaved and its results compared:

- `tiny`: the chain of `overhead.py`, per node, against torch eager and onnxruntime without optimisations;
- `model`: zoo models, our eager run, our replay and onnxruntime;
- `fixed`: what a replayed run of two tiny nodes with three feeds takes, beside onnxruntime's silero-vad.

`--check` exits with 1 when a replayed node takes more than 1.75 x onnxruntime's, when the median over the
models of replay over eager is above 1.03, or when the fixed cost is above 0.15 x onnxruntime's silero-vad.
Ratios are of the fastest rounds, which a busy machine disturbs least.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import agreement
import fetch
import harness
import onnxruntime
import overhead
import recipes
import torch
import weights
from onnx import TensorProto, helper

import torch_ort_session
from torch_ort_session import Options

NODE_BOUND = 1.75
MODEL_BOUND = 1.03
FIXED_BOUND = 0.15
VAD = "silero-vad"

Row = dict[str, Any]


def warm(session: torch_ort_session.Session, feed: Mapping[str, Any]) -> None:
    """Run until the signature is captured, when it can be."""
    for _ in range(4):
        session.run(None, feed)


def tiny(threads: int, seconds: float) -> tuple[list[Row], list[str]]:
    """Per-node times of the chain of tiny nodes."""
    torch.set_num_threads(threads)
    blocks = overhead.make_weights()
    model = overhead.make_model(blocks)
    nodes = len(model.graph.node)
    eager = torch_ort_session.load(model, options=Options(capture="off"))
    session = torch_ort_session.load(model)
    theirs = overhead.plain_onnxruntime(model)
    x = torch.rand(overhead.ROWS, overhead.COLUMNS, generator=torch.Generator().manual_seed(1))
    warm(session, {"x": x + 1})
    expected = theirs.run(None, {"x": x.numpy()})
    verdict = agreement.compare(["y"], [session.run(None, {"x": x})[0].numpy()], expected, overhead.TOLERANCE)
    times = harness.interleave(
        {
            "torch eager": partial(overhead.eager, blocks, x),
            "our eager": partial(eager.run, None, {"x": x}),
            "our replay": partial(session.run, None, {"x": x}),
            "onnxruntime": partial(theirs.run, None, {"x": x.numpy()}),
        },
        seconds=seconds,
        most=100_000,
        warmup=10,
    )
    base = times["onnxruntime"].fastest
    rows = [
        {
            "table": "tiny",
            "name": name,
            "threads": threads,
            "us_per_node": timing.fastest / nodes * 1e6,
            "over_onnxruntime": timing.fastest / base,
            **timing.as_json(),
        }
        for name, timing in times.items()
    ]
    misses = [] if verdict.holds else [f"tiny nodes, {threads} thread(s): {verdict.reason}"]
    ratio = times["our replay"].fastest / base
    if ratio > NODE_BOUND:
        misses.append(f"tiny nodes, {threads} thread(s): {ratio:.2f} x onnxruntime, above {NODE_BOUND}")
    return rows, misses


def models(names: Sequence[str], threads: int, seconds: float) -> tuple[list[Row], list[str]]:
    """Times of zoo models."""
    torch.set_num_threads(threads)
    rows: list[Row] = []
    misses: list[str] = []
    for model in fetch.read_zoo():
        if names and model["name"] not in names:
            continue
        path = fetch.fetch(model)
        source = weights.filled(path) if model.get("weights") == "random" else str(path)
        feed = recipes.feeds(model, (model.get("sizes") or [{}])[0])
        eager = torch_ort_session.load(source, options=Options(capture="off"))
        session = torch_ort_session.load(source)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        theirs = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        warm(session, feed)
        if not same(eager.run(None, feed), session.run(None, feed)):
            misses.append(f"{model['name']}, {threads} thread(s): the replay differs from the eager run")
        times = harness.interleave(
            {
                "our eager": partial(eager.run, None, feed),
                "our replay": partial(session.run, None, feed),
                "onnxruntime": partial(theirs.run, None, feed),
            },
            seconds=seconds,
        )
        rows.append(
            {
                "table": "model",
                "name": model["name"],
                "threads": threads,
                "replays": session.stats().get("replays", 0),
                "eager_ms": times["our eager"].fastest * 1e3,
                "replay_ms": times["our replay"].fastest * 1e3,
                "onnxruntime_ms": times["onnxruntime"].fastest * 1e3,
                "replay_over_eager": times["our replay"].fastest / times["our eager"].fastest,
                "replay_over_onnxruntime": times["our replay"].fastest / times["onnxruntime"].fastest,
                "spread": times["our replay"].spread,
            }
        )
    if rows:
        median = statistics.median(row["replay_over_eager"] for row in rows)
        if median > MODEL_BOUND:
            misses.append(
                f"models, {threads} thread(s): median replay over eager {median:.2f} > {MODEL_BOUND}"
            )
    return rows, misses


def same(ours: Sequence[Any], theirs: Sequence[Any]) -> bool:
    """Whether results agree to 1e-6 of the largest magnitude (integers exactly)."""
    for a, b in zip(ours, theirs, strict=True):
        if not isinstance(a, torch.Tensor):
            continue
        if a.shape != b.shape:
            return False
        scale = float(a.double().abs().max()) if a.numel() else 0.0
        bound = 1e-5 * scale if a.is_floating_point() else 0.0
        if a.numel() and float((a.double() - b.double()).abs().max()) > bound:
            return False
    return True


def fixed(seconds: float) -> tuple[list[Row], list[str]]:
    """The fixed cost of a replayed run with three small feeds, beside onnxruntime's silero-vad."""
    torch.set_num_threads(1)
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64]) for name in "abc"]
    nodes = [helper.make_node("Add", ["a", "b"], ["t"]), helper.make_node("Add", ["t", "c"], ["y"])]
    graph = helper.make_graph(
        nodes, "g", infos, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    session = torch_ort_session.load(model)
    feed = {name: torch.rand(1, 64) for name in "abc"}
    warm(session, feed)
    entry = next(item for item in fetch.read_zoo() if item["name"] == VAD)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    theirs = onnxruntime.InferenceSession(
        str(fetch.fetch(entry)), options, providers=["CPUExecutionProvider"]
    )
    speech = recipes.feeds(entry, entry["sizes"][0])
    times = harness.interleave(
        {
            "replayed run, 3 feeds, 2 nodes": partial(session.run, None, feed),
            "onnxruntime, silero-vad": partial(theirs.run, None, speech),
        },
        seconds=seconds,
        most=100_000,
        warmup=50,
    )
    ours, base = times.values()
    ratio = ours.fastest / base.fastest
    rows = [
        {"table": "fixed", "name": name, "threads": 1, "us": timing.fastest * 1e6, **timing.as_json()}
        for name, timing in times.items()
    ]
    misses = (
        []
        if ratio <= FIXED_BOUND
        else [f"fixed cost: {ratio:.2f} x onnxruntime's silero-vad > {FIXED_BOUND}"]
    )
    return rows, misses


def text_of(rows: Sequence[Row]) -> str:
    """The three tables."""
    parts = []
    chosen = [row for row in rows if row["table"] == "tiny"]
    cells = [
        (
            r["name"],
            str(r["threads"]),
            f"{r['us_per_node']:.3f}",
            f"±{r['spread']:.0%}",
            f"{r['over_onnxruntime']:.2f}x",
        )
        for r in chosen
    ]
    parts.append(harness.table(("1,000 tiny nodes", "threads", "µs a node", "spread", "over ort"), cells))
    chosen = [row for row in rows if row["table"] == "model"]
    cells = [
        (
            r["name"],
            str(r["threads"]),
            f"{r['eager_ms']:.2f}",
            f"{r['replay_ms']:.2f}",
            f"{r['onnxruntime_ms']:.2f}",
            f"±{r['spread']:.0%}",
            f"{r['replay_over_eager']:.2f}x",
            f"{r['replay_over_onnxruntime']:.2f}x",
            "" if r["replays"] else "not captured",
        )
        for r in chosen
    ]
    if cells:
        heads = (
            "model",
            "threads",
            "eager ms",
            "replay ms",
            "ort ms",
            "spread",
            "over eager",
            "over ort",
            "",
        )
        parts.append(harness.table(heads, cells))
        median = statistics.median(r["replay_over_eager"] for r in chosen)
        parts.append(f"median replay over eager: {median:.2f}x")
    chosen = [row for row in rows if row["table"] == "fixed"]
    cells = [(r["name"], f"{r['us']:.1f}", f"±{r['spread']:.0%}") for r in chosen]
    parts.append(harness.table(("fixed cost", "µs", "spread"), cells))
    return "\n\n".join(parts)


def main(argv: Sequence[str] | None = None) -> int:
    parser = harness.parser(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", nargs="*", default=[], help="zoo models (all)")
    parser.add_argument("--threads", nargs="*", type=int, default=[1, 2], help="thread counts (1 2)")
    parser.add_argument("--seconds", type=float, default=1.5, help="time for each row (1.5)")
    args = parser.parse_args(argv)
    rows: list[Row] = []
    misses: list[str] = []
    for threads in args.threads:
        for found, missed in (tiny(threads, args.seconds * 2), models(args.only, threads, args.seconds)):
            rows += found
            misses += missed
    found, missed = fixed(args.seconds)
    rows += found
    misses += missed
    return harness.finish("replay", text=text_of(rows), rows=rows, misses=misses, args=args)


if __name__ == "__main__":
    sys.exit(main())
