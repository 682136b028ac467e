"""What a trip takes of a Loop whose body is captured: decoders that are one model each make 64 tokens.

The decoders of `loops.py` run with their bodies step by step ("steps"), with the default options, so that the
body is captured and replayed ("ours"), and in onnxruntime, on one thread, in turns on the same feeds, and
their results are compared. `--check` exits with 1 when ours takes more than 0.6 x the time of the steps or
more than its bound times onnxruntime's, when it gives other bits than the steps do, or when the body was not
captured exactly once. Ratios are medians over the rounds, whose runs met the same spell of the machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import agreement
import harness
import loops
import onnx
import onnxruntime
import torch

import torch_ort_session
from torch_ort_session import Options

TOKENS = 64
TOLERANCE = 1e-4
STEPS_BOUND = 0.6

Feed = dict[str, torch.Tensor]
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A decoder, what it is fed beside the number of tokens, and its bound in times of onnxruntime's time."""

    make: Callable[[], onnx.ModelProto]
    feed: Callable[[], Feed]
    bound: float


CASES = {
    "recurrent": Case(
        loops.recurrent, lambda: {"start": torch.tensor([3]), "h": torch.randn(1, 64) * 0.1}, bound=6.0
    ),
    "attending": Case(loops.attending, lambda: {"start": torch.tensor([3])}, bound=3.0),
}


def theirs(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """onnxruntime on one thread, with its optimisations."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def measure(name: str, case: Case, seconds: float, tokens: int) -> tuple[Row, list[str]]:
    """A row, and what misses its bound."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = case.make()
    steps = torch_ort_session.load(model, options=Options(capture="off"))
    ours = torch_ort_session.load(model)
    other = theirs(model)
    feed = {**case.feed(), "n": torch.tensor(tokens)}
    arrays = {key: value.numpy() for key, value in feed.items()}
    results = [ours.run(None, feed) for _ in range(4)]
    wanted, told = steps.run(None, feed), other.run(None, arrays)
    names = [port.name for port in ours.outputs]
    # A fused function may differ in its last place, and each token goes on from the one before.
    differing = sum(not _near(a, b) for each in results for a, b in zip(each, wanted, strict=True))
    found = agreement.compare(names, [r.numpy() for r in results[-1]], told, TOLERANCE)
    times = harness.interleave(
        {
            "steps": lambda: steps.run(None, feed),
            "ours": lambda: ours.run(None, feed),
            "onnxruntime": lambda: other.run(None, arrays),
        },
        seconds=seconds,
        most=1000,
    )
    to_steps = harness.paired(times["ours"], times["steps"])
    to_other = harness.paired(times["ours"], times["onnxruntime"])
    stats = ours.stats()
    row: Row = {
        "model": name,
        "tokens": tokens,
        **{variant: taken.median / tokens for variant, taken in times.items()},
        "to_steps": to_steps,
        "to_onnxruntime": to_other,
        "body_captures": stats["body captures"],
    }
    misses = []
    if to_steps > STEPS_BOUND:
        misses.append(f"{name}: {to_steps:.2f} x its steps, above {STEPS_BOUND:.2f}")
    if to_other > case.bound:
        misses.append(f"{name}: {to_other:.2f} x onnxruntime, above {case.bound:.2f}")
    if differing:
        misses.append(f"{name}: {differing} outputs are not those of the steps")
    if not found.holds:
        misses.append(f"{name}: onnxruntime says otherwise: {found.reason}")
    if stats["body captures"] != 1:
        misses.append(f"{name}: the body was captured {stats['body captures']} times")
    return row, misses


def _near(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    return ours.shape == theirs.shape and torch.allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = harness.parser(__doc__ or "")
    parser.add_argument("--seconds", type=float, default=4.0, help="time for each model")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="tokens a run makes, 64 at most")
    args = parser.parse_args(arguments)
    rows: list[Row] = []
    misses: list[str] = []
    for name, case in CASES.items():
        row, missing = measure(name, case, args.seconds, args.tokens)
        rows.append(row)
        misses += missing
    lines = [
        [
            each["model"],
            *(f"{each[variant] * 1e6:.0f}" for variant in ("steps", "ours", "onnxruntime")),
            f"{each['to_steps']:.2f}",
            f"{each['to_onnxruntime']:.2f}",
        ]
        for each in rows
    ]
    headers = ["microseconds a token", "steps", "ours", "onnxruntime", "ours / steps", "ours / onnxruntime"]
    return harness.finish("control", text=harness.table(headers, lines), rows=rows, misses=misses, args=args)


if __name__ == "__main__":
    sys.exit(main())
