"""What a token costs a decoder whose caches are feeds that grow: every run has a signature of its own.

The decoder of `decoder.py`, which reads every shape back as exported models do, runs token by token: node by
node ("eager"), with the default options ("ours"), as code for torch ("torch"), and in onnxruntime, on one
thread, in turns on the same feeds, and every result is compared. `--check` exits with 1 when ours takes more
than 0.6 x eager's time for the small decoder or more than 0.9 x for the wide one, which mostly multiplies
matrices; when its results are further from the others' than rounding; or when a growing run was ineligible.
Ratios are of the fastest tokens, which a busy machine disturbs least.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import agreement
import harness
import onnx
import onnxruntime
import torch
from decoder import Size, TorchDecoder, first_feed, make_decoder, next_feed

import torch_ort_session
from torch_ort_session import Options

BOUNDS = {"small": 0.6, "wide": 0.9}
TOLERANCE = 1e-4
SIZES = {
    "small": Size(layers=4, heads=8, groups=2, width=16, words=200),
    "wide": Size(layers=4, heads=8, groups=2, width=64, words=2000),
}
CONTEXTS = (50, 150, 250, 350)
TOKENS = 24

Feed = dict[str, torch.Tensor]
Run = Callable[[Feed], Sequence[Any]]
Row = dict[str, Any]


def theirs(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """onnxruntime on one thread, with its optimisations."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def decode(
    names: Sequence[str], runs: dict[str, Run], feed: Feed, tokens: int
) -> tuple[dict[str, list[float]], agreement.Agreement, int]:
    """Run variants in turn, token by token.

    Returns:
        Times by variant, how far "ours" is from "onnxruntime" at worst, and the number of outputs of "ours"
        that are further than rounding from those of "eager" and "torch".
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    worst = agreement.Agreement(0.0, 0, "")
    differing = 0
    order = list(runs)
    for token in range(tokens):
        results = {}
        for name in order[token % len(order) :] + order[: token % len(order)]:
            begun = time.perf_counter()
            results[name] = runs[name](feed)
            times[name].append(time.perf_counter() - begun)
        ours, eager = results["ours"], results["eager"]
        for other in (eager, results["torch"]):
            found = agreement.compare(names, [r.numpy() for r in ours], [r.numpy() for r in other], TOLERANCE)
            differing += not found.holds
        found = agreement.compare(names, [r.numpy() for r in ours], results["onnxruntime"], TOLERANCE)
        worst = agreement.worse(worst, found)
        feed = next_feed(feed, dict(zip(names, eager, strict=True)))
    return times, worst, differing


def measure(name: str, size: Size, rounds: int, tokens: int) -> tuple[list[Row], list[str]]:
    """A row for each length of context, one for what 100 tokens of it add, and what misses its bound."""
    torch.set_num_threads(1)
    model = make_decoder(size)
    eager = torch_ort_session.load(model, options=Options(capture="off"))
    ours = torch_ort_session.load(model)
    other, plain = theirs(model), TorchDecoder(size, model)
    names = [port.name for port in ours.outputs]
    runs: dict[str, Run] = {
        "eager": lambda feed: eager.run(None, feed),
        "ours": lambda feed: ours.run(None, feed),
        "torch": plain.run,
        "onnxruntime": lambda feed: other.run(None, {key: value.numpy() for key, value in feed.items()}),
    }
    # What is kept counts from the shortest context.
    decode(names, runs, first_feed(size, past=CONTEXTS[0] - 10), 10)
    fastest: dict[int, dict[str, float]] = {
        context: dict.fromkeys(runs, float("inf")) for context in CONTEXTS
    }
    worst, differing = agreement.Agreement(0.0, 0, ""), 0
    for _ in range(rounds):
        for context in CONTEXTS:
            times, found, other_bits = decode(names, runs, first_feed(size, past=context), tokens)
            worst, differing = agreement.worse(worst, found), differing + other_bits
            for variant, taken in times.items():
                fastest[context][variant] = min(fastest[context][variant], *taken)
    rows = [row(name, str(context), fastest[context]) for context in CONTEXTS]
    last, first = fastest[CONTEXTS[-1]], fastest[CONTEXTS[0]]
    hundreds = (CONTEXTS[-1] - CONTEXTS[0]) / 100
    rows.append(row(name, "+100", {variant: (last[variant] - first[variant]) / hundreds for variant in runs}))
    misses = [
        f"{name} at {each['context']}: {each['ratio']:.2f} x eager, above {BOUNDS[name]:.2f}"
        for each in rows[:-1]
        if each["ratio"] > BOUNDS[name]
    ]
    if not worst.holds:
        misses.append(f"{name}: onnxruntime says otherwise: {worst.reason}")
    if differing:
        misses.append(f"{name}: {differing} runs are not those of the eager run and of torch")
    stats = ours.stats()
    for key in ("growing runs ineligible", "growing runs rebuilt"):
        if stats[key]:
            misses.append(f"{name}: {stats[key]} {key}")
    if not stats["growing runs replayed"]:
        misses.append(f"{name}: no growing run was replayed")
    return rows, misses


def row(name: str, context: str, times: dict[str, float]) -> Row:
    return {
        "model": name,
        "context": context,
        **{variant: taken for variant, taken in times.items()},
        "ratio": times["ours"] / times["eager"],
        "beside": times["ours"] / times["onnxruntime"],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = harness.parser(__doc__ or "")
    parser.add_argument("--rounds", type=int, default=6, help="decodes of each length of context")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="tokens of each")
    args = parser.parse_args(arguments)
    rows: list[Row] = []
    misses: list[str] = []
    for name, size in SIZES.items():
        found, missing = measure(name, size, args.rounds, args.tokens)
        rows += found
        misses += missing
    lines = [
        [
            f"{each['model']}, context {each['context']}",
            *(f"{each[variant] * 1e6:.0f}" for variant in ("eager", "torch", "ours", "onnxruntime")),
            f"{each['ratio']:.2f}",
            f"{each['beside']:.2f}",
        ]
        for each in rows
    ]
    headers = ["microseconds a token", "eager", "torch", "ours", "onnxruntime"]
    headers += ["ours / eager", "ours / onnxruntime"]
    return harness.finish("growing", text=harness.table(headers, lines), rows=rows, misses=misses, args=args)


if __name__ == "__main__":
    sys.exit(main())
