"""Running a grown model by the session and by the oracles, and comparing."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import torch
from onnx.reference import ReferenceEvaluator

import torch_ort_session as tos
from differential.growth import Array, Grown
from differential.known import wrong
from differential.oracle import OnnxRuntime


@dataclass(frozen=True)
class Difference:
    """A value that the session and an oracle see differently."""

    seed: int
    run: str
    oracle: str
    output: str
    detail: str

    def __str__(self) -> str:
        return f"seed {self.seed}, {self.run}, {self.output!r} against {self.oracle}: {self.detail}"


def reference(model: onnx.ModelProto, feed: dict[str, Array]) -> list[Any] | None:
    """What onnx's reference computes; None where it cannot."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return list(ReferenceEvaluator(model).run(None, feed))
    except Exception:
        return None


def plain(value: Any) -> Any:
    """A result as numpy."""
    if isinstance(value, torch.Tensor):
        return value.numpy()
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value


def differs(got: Any, wanted: Any) -> str:
    """How two values differ; empty when they do not."""
    if isinstance(wanted, list):
        if not isinstance(got, list) or len(got) != len(wanted):
            return f"a sequence of {len(wanted)} was expected"
        return next((d for d in map(differs, got, wanted) if d), "")
    wanted = np.asarray(wanted)
    if got.dtype != wanted.dtype or got.shape != wanted.shape:
        return f"{got.dtype}{list(got.shape)} instead of {wanted.dtype}{list(wanted.shape)}"
    if wanted.dtype.kind != "f":
        return "" if np.array_equal(got, wanted) else f"{_first(got, wanted, got != wanted)}"
    finite = np.abs(wanted[np.isfinite(wanted)].astype(np.float64))
    scale = max(1.0, float(finite.max())) if finite.size else 1.0
    bound = (1e-2 if wanted.dtype.itemsize == 2 else 1e-4) * scale
    with np.errstate(all="ignore"):
        far = ~np.isclose(
            got.astype(np.float64), wanted.astype(np.float64), rtol=1e-4, atol=bound, equal_nan=True
        )
    return _first(got, wanted, far) if far.any() else ""


def _first(got: Array, wanted: Array, far: Array) -> str:
    place = tuple(int(i) for i in np.argwhere(far)[0])
    return (
        f"{got[place]} instead of {wanted[place]} at {list(place)}, {int(far.sum())} of {far.size} elements"
    )


SIZES = (3, 3, 2, 3, 3, 2, 1, 3, 0, 2, 2, 3)
"""The symbol's size run by run: one shape is captured and replayed while others come between."""


@dataclass
class Tally:
    """What checks found.

    Attributes:
        differences: Where every oracle that can run a model contradicts the session, or its runs one another.
        compared: How often each oracle was compared with, and how many runs were replays.
        ops: Nodes by operator.
    """

    differences: list[Difference] = field(default_factory=list)
    compared: Counter[str] = field(default_factory=Counter)
    ops: Counter[str] = field(default_factory=Counter)


def check(grown: Grown, ort: OnnxRuntime, tally: Tally, sizes: Sequence[int] = SIZES) -> None:
    """Run a model again and again with fresh data, eagerly and as a session chooses, beside the oracles."""
    found = tally.differences
    auto = tos.load(grown.model)
    eager = tos.load(grown.model, options=tos.Options(capture="off"))
    asked = _oracles(grown.model, ort)
    names = [out.name for out in grown.model.graph.output]
    able: set[str] = set()
    unfit = {name for name in asked if wrong(name, grown.model, empty=True)}
    for index, size in enumerate(sizes):
        run = f"run {index}, n={size}"
        feed = grown.feed(index, size)
        asking = {n: ask for n, ask in asked.items() if n not in unfit or all(a.size for a in feed.values())}
        answers = {name: ask(feed) for name, ask in asking.items()}
        known = {name: answer for name, answer in answers.items() if answer is not None}
        able |= known.keys()
        results: dict[str, Any] = {}
        for how, session in (("eager", eager), ("auto", auto)):
            with contextlib.ExitStack() as stack:
                if index and (able - known.keys() or "onnxruntime" not in known):
                    # An oracle refuses this feed, or only the reference, which checks little, takes it.
                    stack.enter_context(contextlib.suppress(tos.SessionError))
                results[how] = [plain(value) for value in session.run(None, feed)]
        if len(results) == 1:
            found.append(
                Difference(grown.seed, run, "the other run", "", f"only the {[*results]} run succeeded")
            )
        for i, name in enumerate(names):
            for how, values in results.items():
                found += _against(
                    grown.seed, f"{run}, {how}", name, values[i], {k: v[i] for k, v in known.items()}
                )
            if len(results) == 2:
                detail = differs(results["auto"][i], results["eager"][i])
                if detail:
                    found.append(Difference(grown.seed, run, "the eager run", name, detail))
        tally.compared.update(known.keys() if results else ())
    tally.compared["replays"] += auto.stats().get("replays", 0)


def _oracles(
    model: onnx.ModelProto, ort: OnnxRuntime
) -> dict[str, Callable[[dict[str, Array]], list[Any] | None]]:
    """Who can be asked about a model: those that are known to be wrong about it are not."""
    asked: dict[str, Callable[[dict[str, Array]], list[Any] | None]] = {}
    if not wrong("reference", model, empty=False):
        asked["reference"] = functools.partial(reference, model)
    if not wrong("onnxruntime", model, empty=False) and ort.ask(model.SerializeToString()) is not None:
        asked["onnxruntime"] = ort.ask
    return asked


def _against(seed: int, run: str, name: str, got: Any, answers: dict[str, Any]) -> list[Difference]:
    details = {oracle: differs(got, wanted) for oracle, wanted in answers.items()}
    if not all(details.values()):
        return []
    return [Difference(seed, run, oracle, name, detail) for oracle, detail in details.items()]
