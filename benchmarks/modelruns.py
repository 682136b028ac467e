"""Real models run in four ways: node by node, replayed, the recorded calls one by one, and in onnxruntime."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import calls
import fetch
import harness
import onnxruntime
import recipes
import torch
import weights

import torch_ort_session
from torch_ort_session import Options
from torch_ort_session.runtime.captures.compare import difference

EAGER_BOUND = 1.03
CALLS_BOUND = 1.1
SHORT_MS = 1.0
"""Calls that take less are not judged: beside them a run's fixed cost shows, which has a bound of its own."""
SAME = 5e-6
"""Of the largest magnitude: what another order of sums explains at worst."""

Row = dict[str, Any]


def warm(session: torch_ort_session.Session, feed: Mapping[str, Any]) -> None:
    """Run until the signature is captured, when it can be."""
    for _ in range(4):
        session.run(None, feed)


def onnxruntime_session(source: Any, threads: int) -> onnxruntime.InferenceSession:
    """onnxruntime with its optimisations, on so many threads."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def measure(names: Sequence[str], threads: Sequence[int], seconds: float) -> tuple[list[Row], list[str]]:
    """A row for each model and number of threads, and what misses its bound."""
    rows: list[Row] = []
    misses: list[str] = []
    for model in fetch.read_zoo():
        if not names or model["name"] in names:
            found, missed = one_model(model, threads, seconds)
            rows += found
            misses += missed
    for count in threads:
        misses += judge(rows, count)
    return rows, misses


def one_model(
    model: Mapping[str, Any], threads: Sequence[int], seconds: float
) -> tuple[list[Row], list[str]]:
    """Rows of one model, and whether its replay gives what its eager run gives."""
    path = fetch.fetch(model)
    source = weights.filled(path) if model.get("weights") == "random" else str(path)
    feed = recipes.feeds(model, (model.get("sizes") or [{}])[0])
    eager = torch_ort_session.load(source, options=Options(capture="off"))
    session = torch_ort_session.load(source)
    names = [port.name for port in session.outputs]
    rows, misses = [], []
    for count in threads:
        torch.set_num_threads(count)
        warm(session, feed)
        differs = difference(names, session.run(None, feed), eager.run(None, feed), rounding=SAME)
        if differs:
            misses.append(f"{model['name']}, {count} thread(s): {differs}")
        pieces, why = calls.pieces_of(source, feed)
        variants = {"eager": partial(eager.run, None, feed), "replay": partial(session.run, None, feed)}
        if pieces:
            variants["calls"] = calls.one_by_one(pieces)
        theirs = onnxruntime_session(source, count)
        times = harness.interleave(
            variants | {"onnxruntime": partial(theirs.run, None, feed)},
            seconds=seconds,
            least=3,
            most=2000,
            warmup=1,
            telling=["calls"],
        )
        rows.append(row_of(model["name"], count, times, why, session.stats()["replays"]))
    return rows, misses


def row_of(name: str, threads: int, times: Mapping[str, harness.Timing], why: str, replays: int) -> Row:
    """What is shown and judged of one model."""
    replay = times["replay"]
    return {
        "table": "model",
        "name": name,
        "threads": threads,
        "replays": replays,
        **{f"{variant}_ms": timing.median * 1e3 for variant, timing in times.items()},
        "spread": replay.spread,
        "rounds": replay.rounds,
        "replay_over_eager": harness.ratio(replay, times["eager"]),
        "replay_over_calls": harness.ratio(replay, times["calls"]) if "calls" in times else None,
        "replay_over_onnxruntime": harness.ratio(replay, times["onnxruntime"]),
        "note": why if replays else "not captured",
    }


def judge(measured: Sequence[Row], threads: int) -> Iterator[str]:
    """What misses: the median over models against eager runs, and each long model against its own calls.

    Args:
        measured: Rows of all numbers of threads: a model is short where it is with any, since waiting threads
            can make the same calls take several times as long.
        threads: The number that is judged.
    """
    rows = [row for row in measured if row["threads"] == threads]
    if not rows:
        return
    short = {row["name"] for row in measured if "calls_ms" in row and row["calls_ms"] < SHORT_MS}
    median = statistics.median(row["replay_over_eager"] for row in rows)
    if median > EAGER_BOUND:
        yield f"models, {threads} thread(s): median replay over eager {median:.2f} > {EAGER_BOUND}"
    for row in rows:
        if not row["replays"]:
            yield f"{row['name']}, {threads} thread(s): nothing was replayed"
        ratio = row["replay_over_calls"]
        if ratio is not None and ratio > CALLS_BOUND and row["name"] not in short:
            yield f"{row['name']}, {threads} thread(s): {ratio:.2f} x its calls alone > {CALLS_BOUND}"


def text_of(rows: Sequence[Row]) -> str:
    """The table, and its medians."""
    if not rows:
        return ""
    cells = [
        (
            row["name"],
            str(row["threads"]),
            *(f"{row[key]:.2f}" for key in ("eager_ms", "replay_ms")),
            f"{row['calls_ms']:.2f}" if "calls_ms" in row else "",
            f"{row['onnxruntime_ms']:.2f}",
            f"±{row['spread']:.0%}",
            f"{row['replay_over_eager']:.2f}x",
            "" if row["replay_over_calls"] is None else f"{row['replay_over_calls']:.2f}x",
            f"{row['replay_over_onnxruntime']:.2f}x",
            f"  {row['note']}".rstrip(),
        )
        for row in rows
    ]
    heads = ("model", "threads", "eager ms", "replay ms", "calls ms", "ort ms", "spread")
    heads += ("over eager", "over calls", "over ort", "")
    lines = [harness.table(heads, cells)]
    for key, words in (("replay_over_eager", "eager"), ("replay_over_calls", "its calls alone")):
        known = [row[key] for row in rows if row[key] is not None]
        if known:
            lines.append(
                f"replay over {words}: median {statistics.median(known):.2f}x, most {max(known):.2f}x"
            )
    return "\n".join(lines)
