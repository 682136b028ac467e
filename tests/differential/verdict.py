"""Running a grown model by the session and by the oracles, and comparing."""

from __future__ import annotations

import functools
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import replaying
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
        compared: How often each oracle was compared with, how many outputs of a run with those of the eager
            one, how many errors with its error, and how many runs were replays.
        ops: Nodes by operator.
        graphs: How many models were checked.
    """

    differences: list[Difference] = field(default_factory=list)
    compared: Counter[str] = field(default_factory=Counter)
    ops: Counter[str] = field(default_factory=Counter)
    graphs: int = 0


@dataclass(frozen=True)
class Outcome:
    """What a run came to: its results, or the error that it raised."""

    values: list[Any] | None = None
    error: tos.SessionError | None = None


def outcome(session: tos.Session, feed: dict[str, Array], *, may_fail: bool) -> Outcome:
    """Run a session; an error is an outcome where one may be expected."""
    try:
        return Outcome(session.run(None, feed))
    except tos.SessionError as error:
        if not may_fail:
            raise
        return Outcome(error=error)


def check(grown: Grown, ort: OnnxRuntime, tally: Tally, sizes: Sequence[int] = SIZES) -> None:
    """Run a model again and again with fresh data, eagerly and as a session chooses, beside the oracles."""
    found = tally.differences
    # A fused function may differ in its last place: fused runs are near the eager one, the others equal it.
    auto = tos.load(grown.model, options=tos.Options(fuse=False))
    fused, eager = (
        tos.Session(auto.model, auto.device, options)
        for options in (tos.Options(), tos.Options(capture="off"))
    )
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
        # An oracle refuses this feed, or only the reference, which checks little, takes it.
        may_fail = bool(index and (able - known.keys() or "onnxruntime" not in known))
        outcomes = {
            how: outcome(session, feed, may_fail=may_fail)
            for how, session in (("eager", eager), ("auto", auto), ("fused", fused))
        }
        results = {how: each.values for how, each in outcomes.items() if each.values is not None}
        for how, values in results.items():
            for i, name in enumerate(names):
                answer = {oracle: given[i] for oracle, given in known.items()}
                found += _against(grown.seed, f"{run}, {how}", name, plain(values[i]), answer)
        tally.compared.update(known.keys() if results else ())
        apart = unlike(outcomes["auto"], outcomes["eager"], names)
        apart += unlike(outcomes["fused"], outcomes["eager"], names, to_the_bit=False)
        found += (Difference(grown.seed, run, "the eager run", name, detail) for name, detail in apart)
        tally.compared["eager outputs" if results else "eager errors"] += len(names) if results else 1
    tally.ops.update(node.op_type for node in grown.model.graph.node)
    tally.graphs += 1
    tally.compared["replays"] += auto.stats().get("replays", 0)


def unlike(
    got: Outcome, wanted: Outcome, names: Sequence[str], *, to_the_bit: bool = True
) -> list[tuple[str, str]]:
    """Outputs of a run that are not those of the eager run, to the bit if that is asked, and other errors."""
    if got.values is None or wanted.values is None:
        texts = ["it succeeds" if each.error is None else repr(each.error) for each in (got, wanted)]
        return [] if texts[0] == texts[1] else [("", f"{texts[0]} instead of {texts[1]}")]
    pairs = list(zip(names, got.values, wanted.values, strict=True))
    if not to_the_bit:
        details = ((name, differs(plain(ours), plain(theirs))) for name, ours, theirs in pairs)
        return [(name, detail) for name, detail in details if detail]
    return [
        (name, differs(plain(ours), plain(theirs)) or "the last bits differ")
        for name, ours, theirs in pairs
        if replaying.apart(ours, theirs)
    ]


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
