"""What a replay saves, in time: tiny nodes, real models, a growing decoder, and the fixed cost of a run.

Four tables from one run, everything interleaved and its results compared, on 1 and 2 threads:

- `tiny`: the chain of `overhead.py`, per node, against torch eager and onnxruntime without optimisations;
- `model`: zoo models: our eager run, our replay, the recorded calls each alone (and the steps of seams), and
  onnxruntime;
- `growing`: the decoder of `growing.py`, whose caches grow every token, and what 100 tokens of context add;
- `fixed`: what a replayed run with three small feeds takes beside its recording (check, signature, policy,
  feeds in, results out): silero-vad's run less silero-vad's recording alone, and the whole run of two tiny
  nodes, both beside onnxruntime's silero-vad.

`--check` exits with 1 when a replayed node takes more than 1.75 x onnxruntime's; when the median over the
models of replay over eager is above 1.03, or a model of at least 1 ms takes more than 1.1 x its calls alone;
when the fixed cost is above 0.15 x onnxruntime's silero-vad; or when a growing decoder misses a bound of
`growing.py`.

The machine may be busy: variants take turns in many short rounds. Times are medians with the interquartile
range as spread. Ratios, and the difference that is the fixed cost around silero-vad, are of the fastest
rounds, which others disturb least; those of models with fewer than 100 rounds are medians of the ratios
within each round, since a long round is never undisturbed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import agreement
import fetch
import growing
import harness
import modelruns
import overhead
import recipes
import torch
from modelruns import warm
from onnx import TensorProto, helper

import torch_ort_session
from torch_ort_session import Options

NODE_BOUND = 1.75
FIXED_BOUND = 0.15
VAD = "silero-vad"

Row = dict[str, Any]


def tiny(threads: int, seconds: float) -> tuple[list[Row], list[str]]:
    """Per-node times of the chain of tiny nodes."""
    torch.set_num_threads(threads)
    blocks = overhead.make_weights()
    model = overhead.make_model(blocks)
    nodes = len(model.graph.node)
    eager = torch_ort_session.load(model, options=Options(capture="off"))
    session = torch_ort_session.load(model, options=Options(fuse=False))
    theirs = overhead.plain_onnxruntime(model, threads)
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


def decoders(rounds: int) -> tuple[list[Row], list[str]]:
    """Rows of the growing decoders, per token and per 100 tokens of context."""
    rows: list[Row] = []
    misses: list[str] = []
    for name, size in growing.SIZES.items():
        found, missed = growing.measure(name, size, rounds, growing.TOKENS)
        rows += [{"table": "growing", **row} for row in found]
        misses += missed
    return rows, misses


def two_nodes() -> torch_ort_session.Session:
    """A model whose run is nearly all fixed cost: three feeds, two additions."""
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64]) for name in "abc"]
    nodes = [helper.make_node("Add", ["a", "b"], ["t"]), helper.make_node("Add", ["t", "c"], ["y"])]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", infos, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return torch_ort_session.load(model)


def recording_of(session: torch_ort_session.Session) -> Any:
    """The recording that is the whole of a captured run; None where there are seams."""
    held = (entry.captured for _, entry in session._engine.state.dispatcher.everything())
    return next((captured.whole for captured in held if captured is not None), None)


def fixed(threads: int, seconds: float) -> tuple[list[Row], list[str]]:
    """The fixed cost of a replayed run with three small feeds, beside onnxruntime's silero-vad."""
    torch.set_num_threads(threads)
    small = two_nodes()
    feed = {name: torch.rand(1, 64) for name in "abc"}
    warm(small, feed)
    entry = next(item for item in fetch.read_zoo() if item["name"] == VAD)
    path = str(fetch.fetch(entry))
    arrays = recipes.feeds(entry, entry["sizes"][0])
    speech = {name: torch.from_numpy(array) for name, array in arrays.items()}
    session = torch_ort_session.load(path)
    warm(session, speech)
    recording = recording_of(session)
    if recording is None:
        return [], [f"fixed cost: {VAD} is not one recording"]
    theirs = modelruns.onnxruntime_session(path, threads)
    names = [port.name for port in session.outputs]
    verdict = agreement.compare(
        names, [result.numpy() for result in session.run(None, speech)], theirs.run(None, arrays), 1e-4
    )
    times = harness.interleave(
        {
            f"{VAD}, replayed run": partial(session.run, None, speech),
            f"{VAD}, its recording alone": recording.replay,
            "two nodes, replayed run": partial(small.run, None, feed),
            f"{VAD}, onnxruntime": partial(theirs.run, None, arrays),
        },
        seconds=seconds,
        most=100_000,
        warmup=50,
    )
    run, alone, two, base = times.values()
    costs = {f"around {VAD}'s recording": run.fastest - alone.fastest, "two nodes": two.fastest}
    rows = [
        {"table": "fixed", "name": name, "threads": threads, "us": timing.fastest * 1e6, **timing.as_json()}
        for name, timing in times.items()
    ]
    rows += [
        {
            "table": "fixed cost",
            "name": name,
            "threads": threads,
            "us": cost * 1e6,
            "over_onnxruntime": cost / base.fastest,
        }
        for name, cost in costs.items()
    ]
    misses = [] if verdict.holds else [f"{VAD}: {verdict.reason}"]
    for name, cost in costs.items():
        ratio = cost / base.fastest
        if ratio > FIXED_BOUND:
            misses.append(
                f"fixed cost, {name}, {threads} thread(s): {ratio:.2f} x onnxruntime's {VAD} > {FIXED_BOUND}"
            )
    return rows, misses


def text_of(rows: Sequence[Row]) -> str:
    """The tables."""

    def of(table: str) -> list[Row]:
        return [row for row in rows if row["table"] == table]

    parts = []
    cells: list[Sequence[str]] = [
        (
            r["name"],
            str(r["threads"]),
            f"{r['us_per_node']:.3f}",
            f"±{r['spread']:.0%}",
            f"{r['over_onnxruntime']:.2f}x",
        )
        for r in of("tiny")
    ]
    parts.append(harness.table(("1,000 tiny nodes", "threads", "µs a node", "spread", "over ort"), cells))
    parts.append(modelruns.text_of(of("model")))
    cells = [
        (
            f"{r['model']}, context {r['context']}",
            *(f"{r[key] * 1e6:.0f}" for key in ("eager", "ours", "onnxruntime")),
            f"{r['ratio']:.2f}x",
        )
        for r in of("growing")
    ]
    heads = ("growing decoder, µs a token", "eager", "ours", "ort", "over eager")
    parts.append(harness.table(heads, cells) if cells else "")
    cells = [(r["name"], str(r["threads"]), f"{r['us']:.1f}", f"±{r['spread']:.0%}") for r in of("fixed")]
    parts.append(harness.table(("three small feeds", "threads", "µs", "spread"), cells))
    cells = [
        (r["name"], str(r["threads"]), f"{r['us']:.1f}", f"{r['over_onnxruntime']:.2f}x")
        for r in of("fixed cost")
    ]
    parts.append(harness.table(("fixed cost", "threads", "µs", f"over ort's {VAD}"), cells))
    return "\n\n".join(part for part in parts if part)


def main(argv: Sequence[str] | None = None) -> int:
    parser = harness.parser(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", nargs="*", default=[], help="zoo models (all)")
    parser.add_argument("--threads", nargs="*", type=int, default=[1, 2], help="thread counts (1 2)")
    parser.add_argument("--seconds", type=float, default=1.2, help="time for each row (1.2)")
    parser.add_argument("--rounds", type=int, default=3, help="decodes of each length of context (3)")
    args = parser.parse_args(argv)
    rows: list[Row] = []
    misses: list[str] = []

    def add(found: tuple[Sequence[Mapping[str, Any]], Sequence[str]]) -> None:
        rows.extend(dict(row) for row in found[0])
        misses.extend(found[1])

    for threads in args.threads:
        add(tiny(threads, args.seconds * 2))
        add(fixed(threads, args.seconds * 2))
    add(modelruns.measure(args.only, args.threads, args.seconds))
    add(decoders(args.rounds))
    return harness.finish("replay", text=text_of(rows), rows=rows, misses=misses, args=args)


if __name__ == "__main__":
    sys.exit(main())
