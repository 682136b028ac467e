"""What a run's activations take: naive, eager, the least possible, and what a replay really holds.

For each zoo model, in bytes of activations (weights, and constants that follow from the signature, left out):

- `naive`: all that recorded calls touch together, static inputs included;
- `eager`: the most that an eager run holds at once, measured at torch's CPU allocator, operators' own
  scratch memory included;
- `live`: the most bytes of activations, results included, that are needed at once in the order of the
  nodes, or of the calls that kernels make where these need more;
- `arena`: the block that replays write into, and `bound`, the least that its slots could take;
- `outside`: what a capture holds beside the arena, and the most that a replay allocates at once on top of it,
  measured: what operators allocate, and results, which are given away without a copy;
- `sum`: arena and outside;
- `slotted`: the part of all bytes that recorded calls write which lies in slots.

Feeds are no activations, but a replay copies those that recorded calls read: they count in `live` for as long
as that lasts, in `arena` where they lie, and in `outside` where they do not.

`scratch` is what the one op that runs at the replay's peak has taken for itself by then, such as the unfolded
windows of a convolution that BLAS multiplies. It is a part of `outside` and of `sum`; no plan can place it.

`--check` exits with 1 when an arena is above 1.05 x its bound, or a sum, that scratch left out, above 1.15 x
the live bytes and more than 128 KiB above them: for models of some kilobytes the blocks of 256 bytes and the
result of a seam beside its copy decide the ratio, whatever the plan. Rows above 1.15 say what they consist
of, and those in which less than 90% is slotted where the rest lies.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import fetch
import harness
import recipes
import torch
from torch.profiler import ProfilerActivity, profile

import torch_ort_session
from torch_ort_session import Options
from torch_ort_session.plan.analysis.specs import eager_peak
from torch_ort_session.runtime.captures.capture import CapturedGraph

ARENA_BOUND = 1.05
SUM_BOUND = 1.15
FLOOR = 1 << 17
SHARE = 0.9

Row = dict[str, Any]


class Peak(NamedTuple):
    """The most bytes that torch's CPU allocator held at once for a call.

    Attributes:
        nbytes: How many.
        op: The torch op that was running then; empty between ops.
        scratch: Bytes of those that this op had allocated for itself, and freed before it returned.
    """

    nbytes: int
    op: str
    scratch: int


def allocated(call: Callable[[], object]) -> Peak:
    """Measure a call; what it returns is held until it has returned."""
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=False) as profiler:
        held = call()
    events = profiler.profiler.kineto_results.events()
    del held
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    level = most = at = 0
    for when, nbytes in changes:
        level += nbytes
        if level > most:
            most, at = level, when
    around = [
        event
        for event in events
        if "::" in event.name() and event.start_ns() <= at <= event.start_ns() + event.duration_ns()
    ]
    if not around:
        return Peak(most, "", 0)
    op = max(around, key=lambda event: event.duration_ns())
    before = sum(nbytes for when, nbytes in changes if when < op.start_ns())
    after = sum(nbytes for when, nbytes in changes if when <= op.start_ns() + op.duration_ns())
    return Peak(most, op.name(), max(0, most - max(before, after)))


def captured_of(session: torch_ort_session.Session) -> CapturedGraph | None:
    """The only capture of a session."""
    entries = session._engine.state.dispatcher.entries.values()
    return next((entry.captured for entry in entries if entry.captured is not None), None)


def measure(name: str, path: Any, feed: dict[str, Any]) -> Row:
    """One model's row."""
    eager = torch_ort_session.load(path, options=Options(capture="off"))
    eager.run(None, feed)
    peak = allocated(partial(eager.run, None, feed)).nbytes
    del eager
    session = torch_ort_session.load(path)
    # Control-flow bodies are captured in runs after that which captures the model.
    for _ in range(6):
        session.run(None, feed)
    captured = captured_of(session)
    if captured is None:
        return {"name": name, "captured": False, "eager": peak}
    replay, op, scratch = allocated(partial(session.run, None, feed))
    memory, recorded = captured.memory, captured.memory.recorded
    beside = memory.static_inputs - memory.placed
    outside = beside + recorded.kept + replay
    written = recorded.naive
    live_nodes = eager_peak(captured.plan.steps, captured.plan.observation)
    live = max(live_nodes, recorded.live)
    return {
        "name": name,
        "captured": True,
        "segments": sum(stage.recording is not None for stage in captured.regions),
        "naive": written,
        "eager": peak,
        "live": live,
        "live_nodes": live_nodes,
        "arena": memory.slots,
        "bound": recorded.bound,
        "outside": outside,
        "static_inputs": beside,
        "kept": recorded.kept,
        "replay": replay,
        "scratch": scratch,
        "scratch_of": op,
        "fresh": memory.fresh,
        "sum": memory.slots + outside,
        "arena_over_bound": memory.slots / max(1, recorded.bound),
        "sum_over_live": (memory.slots + outside) / max(1, live),
        "sum_over_eager": (memory.slots + outside) / max(1, peak),
        "slotted": recorded.slotted / written if written else 1.0,
        "functional": recorded.functional / written if written else 0.0,
        "given": recorded.given / written if written else 0.0,
        "staying": recorded.kept / written if written else 0.0,
    }


def why(row: Row) -> str:
    """Where what is not slotted lies, and what a sum above its bound consists of."""
    parts = []
    if row["slotted"] < SHARE:
        rest = {
            "is made anew by operators without an out= form": row["functional"],
            "is given away as a result": row["given"],
            "stays until the next replay": row["staying"],
        }
        lent = "has bytes that results take before or afterwards"
        rest[lent] = 1.0 - row["slotted"] - sum(rest.values())
        parts += [f"{share:.0%} {text}" for text, share in rest.items() if share >= 0.01]
    over = row["sum"] - SUM_BOUND * row["live"]
    if over > 0:
        causes = {
            "results that are given away or cannot be written into slots": row["fresh"],
            f"scratch memory within {row['scratch_of']}": row["scratch"],
            "copied results, and what seams allocate": row["replay"] - row["fresh"] - row["scratch"],
            "copies of feeds": row["static_inputs"],
            "results that stay until the next replay": row["kept"],
        }
        largest = sorted(((n, c) for c, n in causes.items() if n >= over / 4), reverse=True)[:3]
        parts += [f"{nbytes / 1e6:.3f} MB {cause}" for nbytes, cause in largest]
    return "; ".join(parts)


def judge(rows: Sequence[Row]) -> list[str]:
    """A line for each row that misses a bound."""
    misses = []
    for row in rows:
        if not row["captured"]:
            misses.append(f"{row['name']}: not captured")
            continue
        if row["arena_over_bound"] > ARENA_BOUND:
            ratio = row["arena_over_bound"]
            misses.append(f"{row['name']}: the arena is {ratio:.2f} x its bound, above {ARENA_BOUND}")
        if row["sum"] - row["scratch"] > max(SUM_BOUND * row["live"], row["live"] + FLOOR):
            ratio = row["sum_over_live"]
            misses.append(
                f"{row['name']}: the sum is {ratio:.2f} x the live bytes, above {SUM_BOUND}: {why(row)}"
            )
    return misses


def text_of(rows: Sequence[Row]) -> str:
    """The table, in megabytes, and what explains rows."""
    heads = (
        "MB",
        "naive",
        "eager",
        "live",
        "arena",
        "/bound",
        "outside",
        "scratch",
        "sum",
        "/live",
        "/eager",
        "slotted",
    )
    cells = [
        (
            row["name"],
            *(f"{row[key] / 1e6:.2f}" for key in ("naive", "eager", "live", "arena")),
            f"{row['arena_over_bound']:.2f}",
            *(f"{row[key] / 1e6:.2f}" for key in ("outside", "scratch", "sum")),
            f"{row['sum_over_live']:.2f}",
            f"{row['sum_over_eager']:.2f}",
            f"{row['slotted']:.0%}",
        )
        for row in rows
        if row["captured"]
    ]
    notes = [f"{row['name']}: {why(row)}" for row in rows if row["captured"] and why(row)]
    return "\n".join([harness.table(heads, cells), *notes])


def main(argv: Sequence[str] | None = None) -> int:
    parser = harness.parser(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", nargs="*", default=[], help="zoo models (all)")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    rows = []
    for model in fetch.read_zoo():
        if not args.only or model["name"] in args.only:
            feed = recipes.feeds(model, (model.get("sizes") or [{}])[0])
            rows.append(measure(model["name"], fetch.fetch(model), feed))
    return harness.finish("memory", text=text_of(rows), rows=rows, misses=judge(rows), args=args)


if __name__ == "__main__":
    sys.exit(main())
