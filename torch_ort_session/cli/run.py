"""``torch-ort-session run``: run a model once and show what came out."""

from __future__ import annotations

import argparse
import math
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import torch_ort_session
from torch_ort_session.cli.common import add_json, add_model, print_json, table, waiting
from torch_ort_session.cli.feeds import add_feeds, make_feed


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser("run", help="run a model once and show its outputs")
    add_model(parser)
    add_feeds(parser)
    parser.add_argument("--device", default="cpu", help="torch device (default cpu)")
    parser.add_argument("--output", metavar="DIR", help="write each output as a .npy file into this folder")
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Load, run, show."""
    with waiting(f"loading {args.model}"):
        session = torch_ort_session.load(args.model, device=args.device)
    feed = make_feed(session.inputs, args)
    started = time.perf_counter()
    values = session.run(None, feed)
    outputs = [describe(port.name, value) for port, value in zip(session.outputs, values, strict=True)]
    seconds = time.perf_counter() - started
    if args.output is not None:
        _write(Path(args.output), outputs, values)
    if args.json:
        print_json({"model": args.model, "device": args.device, "seconds": seconds, "outputs": outputs})
        return 0
    print(f"{args.model} on {args.device}, {seconds * 1000:.1f} ms")
    print("\n".join(table(_row(output) for output in outputs)))
    return 0


def describe(name: str, value: object) -> dict[str, Any]:
    """A value in a line: its type, shape, range, and how many of its numbers are not finite.

    Args:
        name: The value's name.
        value: A tensor, an array of strings, a tuple of values, or None.

    Returns:
        A record that JSON can carry; the range leaves NaN and infinities out, None when nothing is left.
    """
    facts: dict[str, Any] = {"name": name}
    if isinstance(value, torch.Tensor):
        facts |= {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape)}
        numbers = value.detach().to("cpu", torch.float64 if not value.is_complex() else torch.complex128)
        if not numbers.is_complex():
            finite = numbers[numbers.isfinite()]
            for key, of in (("min", torch.amin), ("max", torch.amax), ("mean", torch.mean)):
                facts[key] = float(of(finite)) if finite.numel() else None
        facts["nan"] = int(numbers.isnan().sum())
        facts["inf"] = int(numbers.isinf().sum())
    elif isinstance(value, np.ndarray):
        facts |= {"dtype": "string", "shape": list(value.shape), "first": [str(v) for v in value.flat[:3]]}
    elif isinstance(value, tuple):
        facts |= {"dtype": "sequence", "items": [describe(f"{name}[{i}]", v) for i, v in enumerate(value)]}
    else:
        facts["dtype"] = "absent"
    return facts


def _row(facts: dict[str, Any]) -> tuple[str, str, str]:
    kind = facts["dtype"] + (str(facts["shape"]) if "shape" in facts else "")
    if "first" in facts:
        return facts["name"], kind, ", ".join(map(repr, facts["first"]))
    if "items" in facts:
        return facts["name"], f"sequence of {len(facts['items'])}", ""
    words = [f"{key} {_number(facts[key])}" for key in ("min", "max", "mean") if facts.get(key) is not None]
    words += [f"{facts[key]} {key}" for key in ("nan", "inf") if facts.get(key)]
    return facts["name"], kind, "  ".join(words)


def _number(value: float) -> str:
    return f"{value:.0f}" if value == math.trunc(value) and abs(value) < 1e6 else f"{value:.4g}"


def _write(folder: Path, outputs: list[dict[str, Any]], values: Sequence[object]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    taken: set[str] = set()
    for index, (facts, value) in enumerate(zip(outputs, values, strict=True)):
        array = as_array(value)
        if array is None:
            facts["file"] = None
            continue
        stem = re.sub(r"[^\w.-]+", "_", facts["name"]).strip("_") or f"output_{index}"
        # Names that differ only in what no file name can hold are told apart by their place.
        while stem.lower() in taken:
            stem = f"{stem}_{index}"
        taken.add(stem.lower())
        path = folder / f"{stem}.npy"
        np.save(path, array)
        facts["file"] = str(path)


def as_array(value: object) -> np.ndarray[Any, Any] | None:
    """A value as an array that numpy can save; types that numpy lacks are widened to float32.

    Returns:
        The array, or None for a sequence or an absent value.
    """
    if isinstance(value, torch.Tensor):
        cpu = value.detach().cpu()
        try:
            return cpu.numpy()
        except TypeError:
            return cpu.float().numpy()
    if isinstance(value, np.ndarray):
        return value.astype(str) if value.dtype == object else value
    return None
