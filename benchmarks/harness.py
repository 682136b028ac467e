"""What every benchmark shares: interleaved timing, a table or JSON, and the exit status of `--check`."""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Timing:
    """Times of one variant, in seconds; `spread` is the interquartile range as a share of the median.

    `samples` holds the time of each round, in order.
    """

    median: float
    spread: float
    fastest: float
    rounds: int
    samples: tuple[float, ...] = field(default=(), compare=False, repr=False)

    def as_json(self) -> dict[str, float | int]:
        return {
            "median_s": self.median,
            "spread": self.spread,
            "fastest_s": self.fastest,
            "rounds": self.rounds,
        }


def summarise(samples: Sequence[float]) -> Timing:
    """Median, spread and minimum of measured times.

    Raises:
        ValueError: there are no samples.
    """
    if not samples:
        raise ValueError("no samples to summarise")
    median = statistics.median(samples)
    if len(samples) < 2:
        return Timing(median, 0.0, median, 1, tuple(samples))
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    spread = (high - low) / median if median > 0.0 else 0.0
    return Timing(median, spread, min(samples), len(samples), tuple(samples))


def paired(one: Timing, other: Timing) -> float:
    """The median over rounds of one variant's time over the other's: both met the same spell of the machine.

    Raises:
        ValueError: they were not timed in the same rounds.
    """
    pairs = zip(one.samples, other.samples, strict=True)
    return statistics.median(a / b if b > 0.0 else float("inf") for a, b in pairs)


def ratio(one: Timing, other: Timing, many: int = 100) -> float:
    """How many times longer one variant takes: by the fastest rounds where there were many, else `paired`.

    Among many short rounds some are undisturbed; a long round never is, and neither is its neighbour.
    """
    if one.rounds >= many and other.fastest > 0.0:
        return one.fastest / other.fastest
    return paired(one, other)


def interleave(
    variants: Mapping[str, Callable[[], object]],
    *,
    seconds: float = 1.0,
    least: int = 5,
    most: int = 200,
    warmup: int = 2,
    telling: Collection[str] = (),
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Timing]:
    """Times variants in turn, so that a slow spell of the machine meets all of them.

    Each round calls every variant once, starting with another one than the round before. Rounds go on until
    `seconds` are spent, at least `least` and at most `most` of them, after `warmup` uncounted rounds. What
    variants of `telling` return are the seconds that count.
    """
    names = list(variants)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(warmup):
        for name in names:
            variants[name]()
    begun = clock()
    done = 0
    while done < least or (done < most and clock() - begun < seconds):
        for name in names[done % len(names) :] + names[: done % len(names)]:
            started = clock()
            told = variants[name]()
            taken = clock() - started
            samples[name].append(float(told) if name in telling else taken)  # type: ignore[arg-type]
        done += 1
    return {name: summarise(taken) for name, taken in samples.items()}


def parser(description: str) -> argparse.ArgumentParser:
    """An argument parser with the options that every benchmark takes."""
    made = argparse.ArgumentParser(description=description)
    add_output_options(made)
    return made


def add_output_options(target: argparse.ArgumentParser) -> None:
    target.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    target.add_argument(
        "--check", action="store_true", help="exit with 1, naming them, when rows miss their bound"
    )


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Text columns: the first aligned left, the others right."""
    widths = [max(len(line[column]) for line in [headers, *rows]) for column in range(len(headers))]
    lines = []
    for line in [headers, ["-" * width for width in widths], *rows]:
        cells = [cell.rjust(width) for cell, width in zip(line, widths, strict=True)]
        cells[0] = line[0].ljust(widths[0])
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def milliseconds(timing: Timing) -> str:
    """`1.23 ms ±4%`: the median and the spread."""
    median = timing.median * 1e3
    return (
        f"{median:.0f} ms ±{timing.spread:.0%}"
        if median >= 100.0
        else f"{median:.3g} ms ±{timing.spread:.0%}"
    )


def finish(
    name: str,
    *,
    text: str,
    rows: Sequence[Mapping[str, Any]],
    misses: Sequence[str],
    args: argparse.Namespace,
) -> int:
    """Prints what a benchmark found and returns its exit status.

    Args:
        name: of the benchmark.
        text: what people read, printed without `--json`; may be empty when it was printed along the way.
        rows: what machines read.
        misses: a line for each row that misses its bound.
        args: with `json` and `check`.
    """
    if args.json:
        found = {
            "benchmark": name,
            "machine": f"{platform.system()} {platform.machine()} Python {platform.python_version()}",
            "rows": list(rows),
            "misses": list(misses),
        }
        print(json.dumps(found, indent=2))
    else:
        if text:
            print(text)
        for miss in misses:
            print(f"misses: {miss}")
        if args.check and not misses:
            print(f"{name}: all {len(rows)} rows hold")
    return 1 if args.check and misses else 0
