"""Another order of the same steps: those that touch what grows together, and between them all the others."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Sequence

from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.lowering import NOTHING, Step, reads, with_release
from torch_ort_session.plan.partition.report import Reason


def growth_reason(step: Step, growing: Collection[int]) -> tuple[Reason, str] | None:
    """Why a step cannot be recorded for runs that grow; None when it touches nothing that does.

    Args:
        step: The step.
        growing: Ids of values whose dims, or whose numbers, are other ones in each run.
    """
    node = step.node
    names = dict(zip((*step.inputs, *step.outputs), (*node.inputs, *node.outputs), strict=True))
    for value in (*step.inputs, *_outside(step), *step.outputs):
        if value in growing:
            # A body reads values of the enclosing graph under names of their own.
            return Reason.GROWTH, f"{names.get(value, 'what its body reads')!r} grows from run to run"
    return None


def regroup(
    items: Sequence[Step], growing: Collection[int], outputs: Collection[int], template: Sequence[Value]
) -> tuple[Step, ...]:
    """Put steps that can be recorded next to each other as far as what they read allows.

    Steps that draw random numbers, and those with bodies, keep their order.

    Args:
        items: The steps in an order in which they can run.
        growing: Ids of values that grow.
        outputs: Ids of the results.
        template: Initial values by id; constants are never released.

    Returns:
        The same steps in an order in which they can run as well, each with what is released after it.
    """
    made = {value: place for place, step in enumerate(items) for value in step.outputs if value != NOTHING}
    waits: list[int] = []
    followers: list[list[int]] = [[] for _ in items]
    before: int | None = None
    for place, step in enumerate(items):
        needs = {made[value] for value in reads(step) if value in made}
        if step.kernel.varies or step.bodies:
            if before is not None:
                needs.add(before)
            before = place
        waits.append(len(needs))
        for need in needs:
            followers[need].append(place)
    apart = [_is_apart(step, growing) for step in items]
    ready: dict[bool, list[int]] = {False: [], True: []}
    for place, count in enumerate(waits):
        if not count:
            ready[apart[place]].append(place)
    order: list[Step] = []
    turn = False
    while ready[False] or ready[True]:
        turn = turn if ready[turn] else not turn
        place = heapq.heappop(ready[turn])
        order.append(items[place])
        for follower in followers[place]:
            waits[follower] -= 1
            if not waits[follower]:
                heapq.heappush(ready[apart[follower]], follower)
    return tuple(with_release(order, outputs, template))


def _is_apart(step: Step, growing: Collection[int]) -> bool:
    if step.bodies or step.kernel.seam_reason(step.node) is not None:
        return True
    return any(value in growing for value in (*step.inputs, *step.outputs))


def _outside(step: Step) -> Iterator[int]:
    return (outside for body in step.bodies.values() for outside, _ in body.captured)
