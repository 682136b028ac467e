"""What the tape's tests share: the recorder, a library of provoking ops, trials in a process of their own."""

from __future__ import annotations

import functools
import os
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from finishing import finish

from torch_ort_session.ops import native
from torch_ort_session.runtime.recorders.api import Diverged, Recorder, Refused
from torch_ort_session.runtime.recorders.devices import recorder_for

Body = Callable[[torch.Tensor], Any]
ROOT = Path(__file__).resolve().parents[2]

needs_extension = pytest.mark.skipif(not native.status().usable, reason=f"tape: {native.status().reason}")


def tape_recorder(*, poison: bool = True) -> Recorder:
    recorder = recorder_for(torch.device("cpu"), poison=poison)
    assert recorder is not None
    return recorder


@functools.cache
def load_provoking_ops() -> None:
    """Compile (once a work tree) and load `tests/csrc/provoking.cpp`."""
    folder = ROOT / "build" / "provoking"
    folder.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.utils import cpp_extension

        cpp_extension.load(
            name="tos_provoking",
            sources=[str(ROOT / "tests" / "csrc" / "provoking.cpp")],
            extra_cflags=["-O0", "-g0"],
            build_directory=str(folder),
            is_python_module=False,
        )


def tensors(value: Any) -> list[torch.Tensor]:
    parts = value if isinstance(value, (list, tuple)) else [value]
    return [part for part in parts if isinstance(part, torch.Tensor)]


def data(turn: int) -> torch.Tensor:
    """Other numbers each turn, of other magnitude and sign balance."""
    generator = torch.Generator().manual_seed(turn)
    return torch.randn(4, 8, generator=generator) * (1.5 if turn else 1.0) - 0.4 * turn


def trial(body: Body, recorder: Recorder | None = None, *, turns: int = 3) -> str:
    """Record a body, plan its memory, and replay it with other data.

    Returns:
        ``right`` when every replay gave what the eager body gives; else what happened.
    """
    recorder = recorder if recorder is not None else tape_recorder()
    x = data(0)
    results: list[torch.Tensor] = []
    with torch.no_grad():
        for _ in range(2):
            body(x)
        before = [tensor.clone() for tensor in tensors(body(x))]
        try:
            recording = recorder.record(lambda: results.extend(tensors(body(x))))
        except Refused as refusal:
            return f"refused: {refusal}"
        finding = compare(results, before)
        if finding:
            return f"recording: {finding}"
        finish(recording, [*results, x])
        for turn in range(1, turns + 1):
            x.copy_(data(turn))
            try:
                recording.replay()
            except Diverged as divergence:
                return f"diverged: {divergence.what}"
            got = [tensor.clone() for tensor in results]
            finding = compare(got, tensors(body(x)))
            if finding:
                return f"replay: {finding}"
    return "right"


def compare(got: list[torch.Tensor], expected: list[torch.Tensor]) -> str:
    if len(got) != len(expected):
        return f"{len(got)} results instead of {len(expected)}"
    for mine, right in zip(got, expected, strict=True):
        if mine.shape != right.shape or mine.dtype != right.dtype:
            return f"{mine.dtype}{list(mine.shape)} instead of {right.dtype}{list(right.shape)}"
        if not torch.allclose(mine, right, rtol=1e-6, atol=1e-6, equal_nan=True):
            return f"off by {(mine - right).abs().max().item():.2g}"
    return ""


def forked(run: Callable[[], str]) -> str:
    """What ``run`` gives in a child process; a crash gives its signal's name."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # A child that only computes, on one thread, needs no lock that a thread of ours may hold.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            torch.set_num_threads(1)
            text = run()
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writer, text.encode()[:4000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        text = stream.read().decode()
    _, status = os.waitpid(child, 0)
    return text if text else f"crashed with {signal.Signals(status & 127).name}"
