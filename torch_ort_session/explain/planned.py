"""The plan of a feed: what runs like it would do, found out by one eager run."""

from __future__ import annotations

from torch_ort_session.plan.plan import Plan, make_plan
from torch_ort_session.runtime.captures.warmup import warm_up, with_fused
from torch_ort_session.runtime.dispatch.paths import RunRequest
from torch_ort_session.runtime.dispatch.state import EngineState
from torch_ort_session.runtime.values.signature import signature_of


def plan_of(state: EngineState, request: RunRequest) -> Plan:
    """Run once, eagerly, and plan what was seen; nothing is captured, and no entry of the policy changes.

    Args:
        state: What runs need.
        request: The run.

    Returns:
        The plan for the signature of these feeds, with the operators that are quarantined by now as seams.

    Raises:
        KernelError: A kernel failed.
    """
    program, outputs, fed = request.program, request.outputs, request.fed
    dispatcher = state.dispatcher
    signature = signature_of(outputs, fed, dispatcher.active(request.keys))
    graph, build = state.graph, state.build
    warm, _ = warm_up(graph, build, program, outputs, signature.keys, fed, state.minimum, dispatcher.unstable)
    quarantined = frozenset(dispatcher.quarantined)
    warm = with_fused(warm, state.device, quarantined, dispatcher.rules.fuse)
    return make_plan(
        warm.program.steps,
        warm.static_values,
        warm.observation,
        state.device,
        quarantined=quarantined,
        minimum=state.minimum,
        keys=warm.keys,
        unstable=warm.unstable,
    )
