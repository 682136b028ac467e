"""What tests of replays share: distances of results, other data, numbers as constants, kinds of seams."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper

from torch_ort_session.plan.lowering.steps import NOTHING, Step, input_params
from torch_ort_session.plan.partition.report import Reason
from torch_ort_session.plan.plan import Plan
from torch_ort_session.session import Session

Feed = Mapping[str, Any]
APART = float("inf")
"""The distance of results that no rounding explains."""


def apart(ours: Any, theirs: Any) -> float:
    """How far apart two results are, as a share of the largest finite magnitude: 0.0 where they are the same.

    Args:
        ours: A tensor, a tuple, strings, or None.
        theirs: What it should be.

    Returns:
        0.0 where every number is the same (NaN is the same as NaN); infinite where forms, dtypes, integers,
        strings, or the places of what is not finite differ.
    """
    if isinstance(theirs, (list, tuple)):
        if not isinstance(ours, (list, tuple)) or len(ours) != len(theirs):
            return APART
        return max((apart(a, b) for a, b in zip(ours, theirs, strict=True)), default=0.0)
    if not isinstance(theirs, torch.Tensor):
        same = ours is None if theirs is None else np.array_equal(ours, theirs)
        return 0.0 if same else APART
    if not isinstance(ours, torch.Tensor) or ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return APART
    if _bits_agree(ours, theirs):
        return 0.0
    if not theirs.is_floating_point() and not theirs.is_complex():
        return APART
    a, b = _wide(ours), _wide(theirs)
    finite = b.isfinite()
    odd = torch.where(finite, 0.0, b)
    if not torch.equal(torch.where(a.isfinite(), 0.0, a).nan_to_num(nan=7.0), odd.nan_to_num(nan=7.0)):
        return APART
    distance = float(torch.where(finite, a - b, 0.0).abs().max()) if b.numel() else 0.0
    return distance / max(float(torch.where(finite, b, 0.0).abs().max()), 1e-30) if distance else 0.0


def _bits_agree(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}.get(theirs.element_size())
    return kind is not None and torch.equal(ours.contiguous().view(kind), theirs.contiguous().view(kind))


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def other_data(feed: Feed, draw: int, *, integers: bool = True) -> dict[str, Any]:
    """Feeds of the same form with other data: elements in another order, floats moved a little as well.

    Args:
        feed: Numpy arrays, lists of them, or None, by name.
        draw: Another one gives another order.
        integers: Whether integers, bools and strings change too; their order may matter.
    """
    rng = np.random.default_rng(draw)
    return {name: _other(value, rng, integers) for name, value in feed.items()}


def _other(value: Any, rng: np.random.Generator, integers: bool) -> Any:
    if isinstance(value, list):
        return [_other(item, rng, integers) for item in value]
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if not isinstance(value, np.ndarray):
        return value
    mixed = _mixed(value, rng)
    if value.dtype.kind not in "fc" and not value.dtype.name.startswith(("bfloat", "float")):
        return mixed if integers else value
    moved = mixed.astype(np.complex128 if value.dtype.kind == "c" else np.float64)
    with np.errstate(all="ignore"):
        moved = moved * (1.0 + rng.uniform(-0.05, 0.05, value.shape))
        moved = np.where(moved == 0.0, rng.uniform(0.0, 0.05, value.shape), moved)
        return moved.astype(value.dtype)


def _mixed(value: np.ndarray[Any, Any], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """The elements in another order, which small arrays may come out of by chance as they were."""
    mixed = rng.permutation(np.array(value).reshape(-1)).reshape(value.shape)
    return np.roll(value, 1) if np.array_equal(mixed, value) else mixed


def seeded(session: Session, feed: Feed, seed: int) -> list[Any]:
    """The results of a run whose random numbers follow from a seed."""
    # torch.manual_seed seeds devices as well that are not there, which takes longer than such a run.
    torch.default_generator.manual_seed(seed)
    return session.run(None, feed)


def differ(one: Feed, other: Feed) -> bool:
    """Whether any feed of two has other data."""
    return any(not _equal(value, other[name]) for name, value in one.items())


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_equal, a, b))
    return a is b or np.array_equal(a, b)


def as_constants(model: onnx.ModelProto, feed: Feed, names: Iterable[str]) -> onnx.ModelProto:
    """The model with some inputs as initializers, which is how exporters write shapes, axes and pads."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    chosen = set(names)
    kept = [info for info in made.graph.input if info.name not in chosen]
    del made.graph.input[:]
    made.graph.input.extend(kept)
    made.graph.initializer.extend(numpy_helper.from_array(feed[name], name) for name in sorted(chosen))
    return made


def number_feeds(plan: Plan) -> set[str]:
    """Inputs that seams of a plan read as Python numbers, or from which such numbers follow."""
    steps = plan.steps
    makers = {value: step for step in steps.items for value in step.outputs if value != NOTHING}
    fed = dict(zip(steps.inputs, steps.input_names, strict=True))
    open_: list[int] = []
    for region in plan.seams:
        if region.reason is Reason.INPUT_SHAPE:
            open_ += [value for p in region.positions for value in _numbers(steps.items[p])]
    found: set[str] = set()
    seen: set[int] = set()
    while open_:
        value = open_.pop()
        if value in seen or value in plan.static_values.data:
            continue
        seen.add(value)
        if value in fed:
            found.add(fed[value])
        elif value in makers:
            open_ += makers[value].inputs
    return found


def _numbers(step: Step) -> Iterator[int]:
    for param, value in zip(input_params(step.kernel, len(step.inputs)), step.inputs, strict=True):
        if param.read and value != NOTHING:
            yield value


class Seam(enum.Enum):
    """What keeps steps out of recordings, coarser than the reports say it."""

    VIEWS = "nothing is computed, only views are made"
    NUMBERS = "a shape or another number that the host needs follows from data"
    SIZE = "the size of a result depends on data"
    BODY = "a body runs step by step, or data decides which one"
    STRINGS = "strings live on the host"
    SEQUENCE = "a sequence or an optional is no tensor"
    IMAGES = "images are decoded on the host"
    RANDOM = "elements are drawn at random"
    UNRECORDED = "recording the operator failed"
    OTHER = "something else"


_DECLARED = (
    ("string", Seam.STRINGS),
    ("image", Seam.IMAGES),
    ("random", Seam.RANDOM),
    ("depend", Seam.SIZE),
)


def seams_of(plan: Plan) -> frozenset[Seam]:
    """The kinds of seams that a plan has; views count where there is no other cause."""
    found = frozenset(_kind(region.reason, region.message) for region in plan.seams)
    return found - {Seam.VIEWS} or found


def _kind(reason: Reason | None, message: str) -> Seam:
    if reason is Reason.CONTROL_FLOW:
        words = (("(strings)", Seam.STRINGS), ("is no tensor", Seam.SEQUENCE))
        return next((kind for word, kind in words if word in message), Seam.BODY)
    if reason is Reason.SEAM:
        return next((kind for word, kind in _DECLARED if word in message), Seam.OTHER)
    plain = {
        Reason.SHORT: Seam.VIEWS,
        Reason.INPUT_SHAPE: Seam.NUMBERS,
        Reason.RECORDING: Seam.UNRECORDED,
    }
    return plain.get(reason, Seam.OTHER) if reason is not None else Seam.OTHER


def tensors(results: Sequence[Any]) -> Iterator[torch.Tensor]:
    """Every tensor among results, those inside of sequences included."""
    for result in results:
        if isinstance(result, (list, tuple)):
            yield from tensors(result)
        elif isinstance(result, torch.Tensor):
            yield result
