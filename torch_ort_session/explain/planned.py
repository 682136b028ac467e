"""The plan of a feed: what runs like it would do, found out by one eager run."""

from __future__ import annotations

from collections.abc import Mapping

from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.plan import Plan, make_plan
from torch_ort_session.runtime.captures.warmup import warm_up, with_fused
from torch_ort_session.runtime.dispatch.state import EngineState
from torch_ort_session.runtime.interpreter.program import Program
from torch_ort_session.runtime.values.signature import signature_of


def plan_of(
    state: EngineState,
    program: Program,
    outputs: tuple[str, ...],
    keys: frozenset[str],
    fed: Mapping[str, Value],
) -> Plan:
    """Run once, eagerly, and plan what was seen; nothing is captured, and no entry of the policy changes.

    Args:
        state: What runs need.
        program: The steps for these outputs, whatever the signature.
        outputs: Requested output names.
        keys: Names of feeds whose value may be part of the signature.
        fed: Feeds.

    Returns:
        The plan for the signature of these feeds, with the operators that are quarantined by now as seams.

    Raises:
        KernelError: A kernel failed.
    """
    dispatcher = state.dispatcher
    signature = signature_of(outputs, fed, dispatcher.active(keys))
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
