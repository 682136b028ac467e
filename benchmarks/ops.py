"""Single operators beside onnxruntime: the slowest that a survey of its CPU operators found.

Trees, LSTM, GRU and NonMaxSuppression are always among them. Each runs with the default options ("ours":
captured and replayed where the operator can be), step by step ("eager") and in onnxruntime, in turns on the
same feeds, on one thread, and the results are compared. Times are seconds of the processor in the fastest
round, which a busy machine disturbs least. `--check` exits with 1 when ours takes more than 3 x onnxruntime's
time and the operator's recipe in `operators.py` gives no reason, or when results differ.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import agreement
import harness
import numpy as np
import onnx
import onnxruntime
import operators
import torch

import torch_ort_session
from torch_ort_session import Options

BOUND = 3.0
RUNS_BEFORE = 4

Row = dict[str, Any]


def theirs(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """onnxruntime on one thread, with its optimisations."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def measure(recipe: operators.Recipe, seconds: float) -> tuple[Row, list[str]]:
    """A row, and what misses its bound."""
    torch.set_num_threads(1)
    model, arrays = recipe.model()
    feed = {n: a if a.dtype == object else torch.from_numpy(a) for n, a in arrays.items()}
    ours, eager = torch_ort_session.load(model), torch_ort_session.load(model, options=Options(capture="off"))
    other = theirs(model)
    told = other.run(None, arrays)
    runs = [ours.run(None, feed) for _ in range(RUNS_BEFORE)]
    names = [port.name for port in ours.outputs]
    found = [
        agreement.compare(names, [np.asarray(value) for value in run], told, recipe.tolerance)
        for run in (runs[0], runs[-1], eager.run(None, feed))
    ]
    times = harness.interleave(
        {
            "ours": lambda: ours.run(None, feed),
            "eager": lambda: eager.run(None, feed),
            "onnxruntime": lambda: other.run(None, arrays),
        },
        seconds=seconds,
        least=20,
        most=1000,
        clock=time.process_time,
    )
    fastest = {variant: taken.fastest for variant, taken in times.items()}
    replayed = fastest["ours"] / fastest["onnxruntime"]
    row: Row = {
        "op": recipe.op,
        "sizes": recipe.sizes,
        **fastest,
        "to_onnxruntime": replayed,
        "eager_to_onnxruntime": fastest["eager"] / fastest["onnxruntime"],
        "captured": bool(ours.stats()["captures"]),
        "reason": recipe.reason,
    }
    misses = []
    if replayed > BOUND and not recipe.reason:
        misses.append(
            f"{recipe.name}: {replayed:.2f} x onnxruntime, above {BOUND:.2f}, and no reason is given"
        )
    misses += [
        f"{recipe.name}: onnxruntime says otherwise: {each.reason}" for each in found if not each.holds
    ]
    return row, misses


def main(arguments: Sequence[str] | None = None) -> int:
    parser = harness.parser(__doc__ or "")
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each operator")
    parser.add_argument("--only", default="", help="operators whose name has this in it")
    args = parser.parse_args(arguments)
    chosen = [recipe for recipe in operators.RECIPES if args.only.lower() in recipe.name.lower()]
    if not chosen:
        parser.error(f"no operator's name has {args.only!r} in it")
    rows: list[Row] = []
    misses: list[str] = []
    for recipe in chosen:
        row, missing = measure(recipe, args.seconds)
        rows.append(row)
        misses += missing
    rows.sort(key=lambda row: -float(row["to_onnxruntime"]))
    return harness.finish("ops", text=describe(rows), rows=rows, misses=misses, args=args)


def describe(rows: Sequence[Row]) -> str:
    """The table, and under it the reasons of those rows that are above the bound."""
    lines = [
        [
            f"{row['op']} {row['sizes']}{'' if row['captured'] else ' (seam)'}",
            *(f"{row[variant] * 1e6:.0f}" for variant in ("ours", "eager", "onnxruntime")),
            f"{row['to_onnxruntime']:.2f}",
            f"{row['eager_to_onnxruntime']:.2f}",
        ]
        for row in rows
    ]
    headers = ["microseconds", "ours", "eager", "onnxruntime", "ours / onnxruntime", "eager / onnxruntime"]
    reasons = [
        f"{row['op']} {row['sizes']}: {row['reason']}"
        for row in rows
        if row["to_onnxruntime"] > BOUND and row["reason"]
    ]
    return "\n".join([harness.table(headers, lines), *reasons])


if __name__ == "__main__":
    sys.exit(main())
