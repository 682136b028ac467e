"""What CUDA graphs save: a chain of tiny nodes, a growing decoder and Gathers, all on the device.

Three tables from one run on one CUDA device, variants taking turns, every result compared:

- `chain`: the thousand tiny nodes of `overhead.py`: torch calls, our eager run, our replay;
- `decoder`: a token of the decoders of `growing.py`, whose caches grow: its torch calls, our eager run, our
  default run;
- `gathers`: the 50 Gathers of `validation.py`, replayed with validation on and off.

Each call ends with a synchronisation, so that times are those of the device's work and not of its queue.
`--device cpu` runs the same tables on the CPU, to try the script out.

`--check` exits with 1 when results differ, when a bad index is not told or spoils a later run, or when the
chain replayed takes longer than the same torch calls one by one. Times are medians with the interquartile
range as spread; ratios are medians of those within each round.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import agreement
import decoder
import growing
import harness
import overhead
import torch
import validation
from modelruns import warm

import torch_ort_session
from torch_ort_session import Options

TOLERANCE = 1e-4
PAST = 100
"""Tokens in the decoder's caches when the first one is timed."""

Row = dict[str, Any]


def finished(device: torch.device, call: Callable[[], object]) -> Callable[[], None]:
    """The call, and a wait for what it left to the device."""

    def timed() -> None:
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return timed


def rows_of(table: str, name: str, times: dict[str, harness.Timing], base: str) -> list[Row]:
    """A row for each variant, its time over that of `base`."""
    return [
        {
            "table": table,
            "name": name,
            "variant": variant,
            "over": base,
            "ratio": harness.paired(timing, times[base]),
            **timing.as_json(),
        }
        for variant, timing in times.items()
    ]


def chain(device: torch.device, seconds: float) -> tuple[list[Row], list[str]]:
    """The chain of tiny nodes."""
    blocks = overhead.make_weights()
    model = overhead.make_model(blocks)
    there = [(bias.to(device), scale.to(device), matrix.to(device)) for bias, scale, matrix in blocks]
    eager = torch_ort_session.load(model, device=device, options=Options(capture="off"))
    replayed = torch_ort_session.load(model, device=device)
    x = torch.rand(overhead.ROWS, overhead.COLUMNS, generator=torch.Generator().manual_seed(1)).to(device)
    runs = {
        "torch": partial(overhead.eager, there, x),
        "eager": partial(eager.run, None, {"x": x}),
        "replay": partial(replayed.run, None, {"x": x}),
    }
    warm(replayed, {"x": x + 1})
    want = overhead.eager(there, x).cpu().numpy()
    misses = []
    for name in ("eager", "replay"):
        found = agreement.compare(["y"], [runs[name]()[0].cpu().numpy()], [want], TOLERANCE)
        if not found.holds:
            misses.append(f"chain, {name}: {found.reason}")
    times = harness.interleave(
        {name: finished(device, run) for name, run in runs.items()}, seconds=seconds, most=100_000, warmup=10
    )
    rows = rows_of("chain", f"{len(model.graph.node)} nodes", times, "torch")
    return rows, misses + judge(rows)


def judge(rows: Sequence[Row]) -> list[str]:
    """The replay that is slower than torch's calls, in words."""
    return [
        f"{row['name']}: replayed in {row['ratio']:.2f} x the time of the torch calls"
        for row in rows
        if row["variant"] == "replay" and row["ratio"] > 1.0
    ]


def tokens(name: str, device: torch.device, seconds: float) -> tuple[list[Row], list[str]]:
    """Tokens of a decoder whose caches grow."""
    size = growing.SIZES[name]
    model = decoder.make_decoder(size)
    plain = decoder.TorchDecoder(size, model, device)
    eager = torch_ort_session.load(model, device=device, options=Options(capture="off"))
    ours = torch_ort_session.load(model, device=device)
    outputs = [port.name for port in ours.outputs]
    feed = {key: value.to(device) for key, value in decoder.first_feed(size, past=PAST).items()}
    for _ in range(10):
        results = ours.run(None, feed)
        feed = decoder.next_feed(feed, dict(zip(outputs, results, strict=True)))
    misses = []
    want = [value.cpu().numpy() for value in plain.run(feed)]
    for variant, session in (("eager", eager), ("default", ours)):
        got = [value.cpu().numpy() for value in session.run(None, feed)]
        found = agreement.compare(outputs, got, want, TOLERANCE)
        if not found.holds:
            misses.append(f"decoder, {name}, {variant}: {found.reason}")
    state = {"feed": feed}

    def step() -> None:
        # Every token has a signature of its own, so the one that is timed moves on.
        state["feed"] = decoder.next_feed(
            state["feed"], dict(zip(outputs, ours.run(None, state["feed"]), strict=True))
        )

    times = harness.interleave(
        {
            "torch": finished(device, lambda: plain.run(state["feed"])),
            "eager": finished(device, lambda: eager.run(None, state["feed"])),
            "default": finished(device, step),
        },
        seconds=seconds,
        most=300,
        warmup=3,
    )
    return rows_of("decoder", f"{name}, from {PAST} tokens", times, "torch"), misses


def gathers(count: int, device: torch.device, seconds: float) -> tuple[list[Row], list[str]]:
    """Gathers with validation on and off."""
    model = validation.make_model(count)
    feed = {
        "x0": torch.rand(count, validation.WIDTH).to(device),
        "index": torch.randint(-count, count, (count,)).to(device),
    }
    sessions = {
        on: torch_ort_session.load(model, device=device, options=Options(validate=on))
        for on in ("run", "off")
    }
    misses = []
    for on, session in sessions.items():
        warm(session, feed)
        if not torch.equal(session.run(None, feed)[0], validation.expected(feed)):
            misses.append(f"gathers, {count} indices, validate={on!r}: another result than torch's")
    if wrong := validation.told(sessions["run"], feed):
        misses.append(f"gathers, {count} indices: {wrong}")
    warm(sessions["run"], feed)
    times = harness.interleave(
        {on: finished(device, partial(session.run, None, feed)) for on, session in sessions.items()},
        seconds=seconds,
        most=100_000,
        warmup=20,
    )
    return rows_of("gathers", f"{count} indices", times, "off"), misses


def text_of(rows: Sequence[Row]) -> str:
    """The table."""
    cells = [
        (
            f"{row['table']}: {row['name']}",
            str(row["variant"]),
            f"{row['median_s'] * 1e6:.1f}",
            f"±{row['spread']:.0%}",
            f"{row['ratio']:.2f}x {row['over']}",
        )
        for row in rows
    ]
    return harness.table(("", "variant", "µs", "spread", "ratio"), cells)


def device_of(name: str) -> torch.device:
    """The device to measure.

    Raises:
        SystemExit: it is a CUDA device and there is none.
    """
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        sys.exit("this machine has no CUDA device, so there is nothing to measure; --device cpu tries it out")
    return device


def main(argv: Sequence[str] | None = None) -> int:
    parser = harness.parser(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--device", default="cuda", help="where to run (cuda)")
    parser.add_argument("--seconds", type=float, default=5.0, help="time for each row (5)")
    args = parser.parse_args(argv)
    device = device_of(args.device)
    measured = [chain(device, args.seconds)]
    measured += [tokens(name, device, args.seconds) for name in growing.SIZES]
    measured += [gathers(count, device, args.seconds) for count in validation.COUNTS]
    rows = [row for found, _ in measured for row in found]
    misses = [miss for _, missed in measured for miss in missed]
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    text = f"{where}, torch {torch.__version__}\n{text_of(rows)}"
    return harness.finish("cuda", text=text, rows=rows, misses=misses, args=args)
