"""Lists that only grow: sequences of which the steps of a body read nothing, not even how long they are."""

from __future__ import annotations

from collections.abc import Set

from torch_ort_session.plan.lowering.steps import NOTHING, Step, Steps


def growing_lists(steps: Steps) -> frozenset[int]:
    """Inputs of a body that are handed on, with entries put in, and not looked at.

    Nothing else of a call follows from what is in them, so that calls may differ in them and still be alike.

    Args:
        steps: The steps of the body; enclosing values that it reads are inputs as well.

    Returns:
        The ids of the inputs; among them may be tensors that are handed on as they are.
    """
    return frozenset(value for value in steps.inputs if _followed(steps, {value}) is not None)


def _followed(steps: Steps, lists: set[int]) -> set[int] | None:
    """Every value that is one of these lists or comes from one; None where a step reads one otherwise."""
    for step in steps.items:
        inside = _inside(step, lists)
        if lists.isdisjoint(step.inputs) and not inside:
            continue
        if step.bodies:
            found = _branches(step, lists, inside)
            if found is None:
                return None
            lists.update(found)
        elif _hands_on(step, lists):
            lists.update(value for value in step.outputs if value != NOTHING)
        else:
            return None
    return lists


def _hands_on(step: Step, lists: Set[int]) -> bool:
    if step.node.domain or lists.isdisjoint(step.inputs[:1]):
        return False
    return step.node.op == "Identity" or (
        step.node.op == "SequenceInsert" and lists.isdisjoint(step.inputs[1:])
    )


def _inside(step: Step, lists: Set[int]) -> dict[str, set[int]]:
    """What the bodies of a step call the lists that they read; only those that read one."""
    found = {
        name: {inner for outer, inner in body.captured if outer in lists}
        for name, body in step.bodies.items()
    }
    return {name: values for name, values in found.items() if values}


def _branches(step: Step, lists: Set[int], inside: dict[str, set[int]]) -> set[int] | None:
    """Results of an If that come from the lists; None where more is made of them than a longer list."""
    if "then_branch" not in step.bodies or not lists.isdisjoint(step.inputs):
        return None
    made: set[int] = set()
    for name, values in inside.items():
        body = step.bodies[name].steps
        found = _followed(body, values)
        if found is None:
            return None
        made.update(outer for outer, inner in zip(step.outputs, body.outputs, strict=True) if inner in found)
    return made
