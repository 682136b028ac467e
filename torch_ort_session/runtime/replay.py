"""Replay: feeds in, recordings and seams in order, results out, with a check wherever a seam lands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.report import Decline, Reason
from torch_ort_session.runtime.capture import Captured, Stage, described
from torch_ort_session.runtime.delivery import Delivery
from torch_ort_session.runtime.execute import Values, raise_failure


def replay(
    captured: Captured, fed: Mapping[str, Value], delivery: Delivery | None = None
) -> tuple[list[Any], tuple[Decline, ...]]:
    """Run a captured signature on new feeds.

    Args:
        captured: The capture.
        fed: Feeds of the captured signature.
        delivery: Of the binding that the capture belongs to; it takes the results as they are.

    Returns:
        The results, in memory of their own, and every seam that gave another shape than in the warm run:
        then the rest ran eagerly, so that the results are right, and the capture is no longer valid.

    Raises:
        KernelError: A seam failed; the capture stays valid.
        Exception: A recording failed; the capture must be retired.
    """
    for name, static in captured.copied:
        static.copy_(fed[name])  # type: ignore[arg-type]
    if captured.whole is not None and captured.results is not None:
        captured.whole.replay()
        if delivery is not None:
            return list(captured.results), ()
        return [result.clone() for result in captured.results], ()
    # Seams write into a frame of this run, so that the capture is as it was, however the run ends.
    frame = captured.frame.copy()
    for name, place in captured.passed:
        frame[place] = fed[name]
    diverged: tuple[Decline, ...] = ()
    for stage in captured.stages:
        if stage.recording is None:
            _run(captured, stage, frame)
            diverged += _land(captured, stage, frame, copy=not diverged)
        elif diverged:
            _run(captured, stage, frame)
        else:
            stage.recording.replay()
    outputs = [frame[value] for value in captured.warm.program.steps.outputs]
    if delivery is not None:
        return outputs, diverged
    return captured.own_results(outputs, fed), diverged


def _run(captured: Captured, stage: Stage, frame: Values) -> None:
    for bound in stage.calls:
        try:
            bound.call(frame)
        except Exception as error:
            raise_failure(bound.step, captured.warm.program.steps, frame, error)
        for value in bound.release:
            frame[value] = None


def _land(captured: Captured, stage: Stage, frame: Values, *, copy: bool) -> tuple[Decline, ...]:
    """Copy a seam's results to where segments read them; says which do not fit there."""
    wrong: tuple[Decline, ...] = ()
    for value, slot in stage.landings:
        made = frame[value]
        if not (
            isinstance(made, torch.Tensor)
            and made.shape == slot.shape
            and made.dtype == slot.dtype
            and made.device == slot.device
        ):
            wrong += (_divergence(captured, stage, value, slot, made),)
        elif copy:
            frame[value] = slot.copy_(made)
    return wrong


def _divergence(captured: Captured, stage: Stage, value: int, slot: torch.Tensor, made: Any) -> Decline:
    node = next(bound.step.node for bound in stage.calls if value in bound.step.outputs)
    name = captured.warm.program.steps.names[value]
    message = f"{name!r} was {described(slot)} when it was captured and is now {described(made)}"
    return Decline(node.name, node.op, node.domain, Reason.DIVERGED, message)
