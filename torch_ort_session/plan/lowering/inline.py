"""Steps -> steps for one signature: an If whose predicate is known is replaced by the steps of its branch.

:mod:`.specialise` does the same with graphs; a body has steps alone, and its scope is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch_ort_session.plan.lowering.build import with_release
from torch_ort_session.plan.lowering.steps import NOTHING, Step, Steps


def static_branches(steps: Steps, static: Mapping[int, object]) -> dict[int, str]:
    """Ifs whose predicate is known.

    Args:
        steps: The steps.
        static: Known values by id, beside the constants.

    Returns:
        By position, the attribute that holds the branch which is taken.
    """
    found: dict[int, str] = {}
    for position, step in enumerate(steps.items):
        if step.node.op == "If" and step.node.domain == "":
            held = static.get(step.inputs[0], steps.template[step.inputs[0]])
            if held is not None and step.inputs[0] not in steps.inputs:
                found[position] = "then_branch" if bool(held) else "else_branch"
    return found


def inline(steps: Steps, taken: Mapping[int, str]) -> Steps:
    """Put the steps of branches in the place of their Ifs.

    Args:
        steps: The steps.
        taken: By position of an If, the attribute that holds the branch which is taken.

    Returns:
        Steps with the same inputs, and outputs of the same meaning; ids that were there stay.
    """
    template, names = list(steps.template), list(steps.names)
    items: list[Step] = []
    made: dict[int, int] = {}
    for position, step in enumerate(steps.items):
        if position not in taken:
            items.append(_renamed(step, made))
            continue
        body = step.bodies[taken[position]]
        ids = {NOTHING: NOTHING, **{inside: made.get(outside, outside) for outside, inside in body.captured}}
        for value, name in enumerate(body.steps.names):
            if value not in ids:
                ids[value] = len(names)
                names.append(name)
                template.append(body.steps.template[value])
        items += [_renamed(inner, ids) for inner in body.steps.items]
        made.update(
            (output, ids[value])
            for output, value in zip(step.outputs, body.steps.outputs, strict=True)
            if output != NOTHING
        )
    outputs = tuple(made.get(value, value) for value in steps.outputs)
    return replace(
        steps,
        items=tuple(with_release(items, outputs, template)),
        template=tuple(template),
        names=tuple(names),
        outputs=outputs,
    )


def _renamed(step: Step, ids: Mapping[int, int]) -> Step:
    """A step with other ids for what it reads and makes."""
    bodies = {
        name: replace(body, captured=tuple((ids.get(out, out), inside) for out, inside in body.captured))
        for name, body in step.bodies.items()
    }
    return replace(
        step,
        inputs=tuple(ids.get(value, value) for value in step.inputs),
        outputs=tuple(ids.get(value, value) for value in step.outputs),
        bodies=bodies,
    )
