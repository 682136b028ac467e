"""Specs: what every value really was in an observed run, so that no shape rule is written twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.lowering import Steps


class Spec(NamedTuple):
    """What a tensor was.

    A named tuple, because a run that is observed makes one for every value: a frozen dataclass takes five
    times as long.

    Attributes:
        dtype: Its dtype.
        shape: Its dims.
        stride: Its strides, in elements.
        offset: Its first element's place in its storage, in elements.
        device: Where it lived.
        nbytes: Bytes of its storage.
        owner: Id of the value that made the storage: its own, or another value's when it is a view.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    device: torch.device
    nbytes: int
    owner: int


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """What a run showed.

    Attributes:
        specs: By value id; None where the value was no tensor or was never made.
        kinds: What values without a spec were: ``"sequence"``, ``"strings"`` or ``"absent"``, by id.
        static: Values whose data follows from the signature alone, kept as constants of the plan.
    """

    specs: tuple[Spec | None, ...]
    kinds: Mapping[int, str] = field(default_factory=dict)
    static: Mapping[int, Value] = field(default_factory=dict)


def spec_of(tensor: torch.Tensor, owner: int) -> Spec:
    """The spec of a tensor whose storage value ``owner`` made."""
    return Spec(
        dtype=tensor.dtype,
        shape=tensor.shape,
        stride=tensor.stride(),
        offset=int(tensor.storage_offset()),
        device=tensor.device,
        nbytes=tensor.untyped_storage().nbytes(),
        owner=owner,
    )


def fits(spec: Spec, tensor: torch.Tensor) -> bool:
    """Whether a seam's result may land where one of this spec landed: same dtype, dims and device."""
    return tensor.dtype == spec.dtype and tensor.shape == spec.shape and tensor.device == spec.device


def eager_peak(steps: Steps, observation: Observation) -> int:
    """Most bytes that live values hold at once in an eager run, feeds and constants left out.

    Args:
        steps: The steps, each with the values that are dropped after it.
        observation: What a run of them showed.
    """
    lasting = {*steps.inputs, *(value for value, held in enumerate(steps.template) if held is not None)}
    holders: dict[int, int] = {}
    live = peak = 0
    for step in steps.items:
        for spec in _tensors(step.outputs, observation):
            if spec.owner not in lasting:
                count = holders.get(spec.owner, 0)
                holders[spec.owner] = count + 1
                live += 0 if count else spec.nbytes
        peak = max(peak, live)
        for spec in _tensors(step.release, observation):
            if spec.owner in holders:
                holders[spec.owner] -= 1
                live -= 0 if holders[spec.owner] else spec.nbytes
    return peak


def _tensors(values: Iterable[int], observation: Observation) -> Iterator[Spec]:
    return (spec for value in values if (spec := observation.specs[value]) is not None)
