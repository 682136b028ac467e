"""Replay: feeds in, recordings and seams in order, results out, with a check wherever a seam lands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.report import Decline
from torch_ort_session.plan.report import Reason as Why
from torch_ort_session.runtime.capture import Captured, Stage
from torch_ort_session.runtime.execute import raise_failure


@dataclass(frozen=True, slots=True, eq=False)
class Replayed:
    """What a replay gave.

    Attributes:
        results: The outputs; those in the capture's own memory must be copied.
        divergence: Why the capture is no longer valid; None when it still is.
    """

    results: list[Any]
    divergence: Decline | None = None


def replay(captured: Captured, fed: Mapping[str, Value]) -> Replayed:
    """Run a captured signature on new feeds.

    Args:
        captured: The capture.
        fed: Feeds of the captured signature.

    Returns:
        The results. Where a seam gave another shape than in the warm run, the rest ran eagerly: the results
        are right, and the capture must be retired.

    Raises:
        KernelError: A seam failed; the capture stays valid.
        Exception: A recording failed; the capture must be retired.
    """
    frame = captured.frame
    for name, place, static in captured.feeds:
        if static is None:
            frame[place] = fed[name]
        else:
            static.copy_(fed[name])  # type: ignore[arg-type]
    divergence: Decline | None = None
    try:
        for stage in captured.stages:
            if divergence is None and stage.recording is not None:
                stage.recording.replay()
            elif divergence is None:
                divergence = _land(captured, stage)
            else:
                _eagerly(captured, stage)
        return Replayed([frame[value] for value in captured.program.steps.outputs], divergence)
    finally:
        for stage in captured.stages:
            for value in stage.raw:
                frame[value] = None
        for _, place, static in captured.feeds:
            if static is None:
                frame[place] = None


def _eagerly(captured: Captured, stage: Stage) -> None:
    frame = captured.frame
    for bound in stage.calls:
        try:
            bound.call(frame)
        except Exception as error:
            raise_failure(bound.step, captured.program.steps, frame, error)


def _land(captured: Captured, stage: Stage) -> Decline | None:
    """Run a seam and copy its results to where segments read them; says what does not fit there."""
    _eagerly(captured, stage)
    frame = captured.frame
    wrong: Decline | None = None
    for value, slot in stage.landings:
        made = frame[value]
        if (
            isinstance(made, torch.Tensor)
            and made.shape == slot.shape
            and made.dtype == slot.dtype
            and made.device == slot.device
        ):
            frame[value] = slot.copy_(made)
        else:
            wrong = _divergence(captured, stage, value, made)
    for value in stage.raw if wrong is None else ():
        spec = captured.observation.specs[value]
        made = frame[value]
        if spec is not None and isinstance(made, torch.Tensor) and made.shape != spec.shape:
            wrong = _divergence(captured, stage, value, made)
    return wrong


def _divergence(captured: Captured, stage: Stage, value: int, made: Any) -> Decline:
    step = next(bound.step for bound in stage.calls if value in bound.step.outputs)
    spec = captured.observation.specs[value]
    was = "?" if spec is None else list(spec.shape)
    now = list(made.shape) if isinstance(made, torch.Tensor) else type(made).__name__
    name = captured.program.steps.names[value]
    message = f"{name!r} was {was} when it was captured and is now {now}"
    return Decline(step.node.name, step.node.op, step.node.domain, Why.DIVERGED, message)
