"""What it costs to be told of a bad index: runs with validation on and off.

A chain of 50 Gathers over rows of 64 floats, each by the same indices: 1, 8, 64, 512 and 4,096 of them. Every
Gather looks at its indices, in both variants; with validation on, what it found is noted in the session's
word, which the run clears at its start and reads at its end. Replayed and eager runs, 1 and 2 threads.

`--check` exits with 1 when replays or eager runs with validation on take more than 1.02 x those with it off,
from 64 indices up; when results differ from torch's; or when a bad index is not told, or spoils a later run.

Variants take turns in many short rounds; a ratio is the median of those within each round. Where a session's
memory happens to lie moves its time by as much as validation does, so that each row is made of several pairs
of sessions, one made first in one half of them and the other in the other: the geometric mean is told, and
the lowest and highest pair.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import harness
import onnx
import torch
from modelruns import warm
from onnx import TensorProto, helper

import torch_ort_session
from torch_ort_session import DeviceValidationError, Options, Session

GATHERS = 50
WIDTH = 64
COUNTS = (1, 8, 64, 512, 4096)
JUDGED = 64
BOUND = 1.02
PAIRS = 8

Row = dict[str, Any]


def make_model(count: int) -> onnx.ModelProto:
    """A chain of Gathers: float[count, 64] x, int64[count] index."""
    infos = [
        helper.make_tensor_value_info("x0", TensorProto.FLOAT, [count, WIDTH]),
        helper.make_tensor_value_info("index", TensorProto.INT64, [count]),
    ]
    nodes = [helper.make_node("Gather", [f"x{i}", "index"], [f"x{i + 1}"]) for i in range(GATHERS)]
    result = helper.make_tensor_value_info(f"x{GATHERS}", TensorProto.FLOAT, [count, WIDTH])
    graph = helper.make_graph(nodes, "gathers", infos, [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def expected(feed: dict[str, torch.Tensor]) -> torch.Tensor:
    """What torch makes of it."""
    x = feed["x0"]
    for _ in range(GATHERS):
        x = x[feed["index"]]
    return x


def told(session: Session, feed: dict[str, torch.Tensor]) -> str:
    """What is wrong with how a bad index is told; nothing when it is told and the next run is right."""
    bad = {**feed, "index": feed["index"].clone()}
    bad["index"][-1] = len(bad["index"])
    try:
        session.run(None, bad)
    except DeviceValidationError as error:
        if error.value != len(bad["index"]):
            return f"the wrong value was told: {error}"
    else:
        return "a bad index was not told"
    (again,) = session.run(None, feed)
    return "" if torch.equal(again, expected(feed)) else "the run after a bad index is wrong"


def pair(
    how: str, model: onnx.ModelProto, feed: dict[str, torch.Tensor], first: str
) -> tuple[dict[str, Session], list[str]]:
    """Two warm sessions, validation on in one of them, and what is wrong with what they give."""
    count = len(feed["index"])
    sessions: dict[str, Session] = {}
    wrong: list[str] = []
    for on in (first, "off" if first == "run" else "run"):
        options = Options(capture="auto" if how == "replayed" else "off", validate=on)
        session = sessions[on] = torch_ort_session.load(model, options=options)
        warm(session, feed)
        (got,) = session.run(None, feed)
        if not torch.equal(got, expected(feed)):
            wrong.append(f"{how}, {count} indices, validate={on!r}: another result than torch's")
        if on == "run" and (untold := told(session, feed)):
            wrong.append(f"{how}, {count} indices: {untold}")
        warm(session, feed)
    return sessions, wrong


def measure(count: int, threads: int, seconds: float, pairs: int) -> tuple[list[Row], list[str]]:
    """Rows of one number of indices, and what is wrong with them."""
    torch.set_num_threads(threads)
    model = make_model(count)
    feed = {"x0": torch.rand(count, WIDTH), "index": torch.randint(-count, count, (count,))}
    misses: list[str] = []
    rows: list[Row] = []
    for how in ("replayed", "eager"):
        made = []
        for number in range(pairs):
            sessions, wrong = pair(how, model, feed, ("run", "off")[number % 2])
            made.append(sessions)
            misses += wrong
        times = [
            harness.interleave(
                {on: partial(session.run, None, feed) for on, session in sessions.items()},
                seconds=seconds / pairs,
                most=100_000,
                warmup=20,
            )
            for sessions in made
        ]
        ratios = [harness.paired(each["run"], each["off"]) for each in times]
        rows.append(
            {
                "how": how,
                "indices": count,
                "threads": threads,
                "on_us": statistics.median(each["run"].median for each in times) * 1e6,
                "off_us": statistics.median(each["off"].median for each in times) * 1e6,
                "spread": statistics.median(each["run"].spread for each in times),
                "rounds": sum(each["run"].rounds for each in times),
                "on_over_off": statistics.geometric_mean(ratios),
                "least": min(ratios),
                "most": max(ratios),
            }
        )
    return rows, misses


def judge(rows: Sequence[Row]) -> list[str]:
    """The rows that miss the bound, in words."""
    return [
        f"{r['how']}, {r['indices']} indices, {r['threads']} thread(s): "
        f"{r['on_over_off']:.3f} x the time without validation > {BOUND}"
        for r in rows
        if r["indices"] >= JUDGED and r["on_over_off"] > BOUND
    ]


def text_of(rows: Sequence[Row]) -> str:
    """The table."""
    cells = [
        (
            r["how"],
            str(r["indices"]),
            str(r["threads"]),
            f"{r['on_us']:.1f}",
            f"{r['off_us']:.1f}",
            f"±{r['spread']:.0%}",
            f"{r['on_over_off']:.3f}x",
            f"{r['least']:.3f} to {r['most']:.3f}",
        )
        for r in rows
    ]
    heads = (
        f"{GATHERS} Gathers",
        "indices",
        "threads",
        "on, µs",
        "off, µs",
        "spread",
        "on over off",
        "of its pairs",
    )
    return harness.table(heads, cells)


def main(argv: Sequence[str] | None = None) -> int:
    parser = harness.parser(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--indices", nargs="*", type=int, default=list(COUNTS), help="how many (1 to 4096)")
    parser.add_argument("--threads", nargs="*", type=int, default=[1, 2], help="thread counts (1 2)")
    parser.add_argument("--seconds", type=float, default=4.0, help="time for each row (4)")
    parser.add_argument("--pairs", type=int, default=PAIRS, help=f"pairs of sessions in a row ({PAIRS})")
    args = parser.parse_args(argv)
    rows: list[Row] = []
    misses: list[str] = []
    for threads in args.threads:
        for count in args.indices:
            found, missed = measure(count, threads, args.seconds, args.pairs)
            rows += found
            misses += missed
    return harness.finish(
        "validation", text=text_of(rows), rows=rows, misses=[*misses, *judge(rows)], args=args
    )


if __name__ == "__main__":
    sys.exit(main())
