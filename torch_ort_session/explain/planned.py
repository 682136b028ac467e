"""The plan of a feed: what runs like it would do, found out by one eager run."""

from __future__ import annotations

from collections.abc import Mapping

from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.plan import Plan, make_plan
from torch_ort_session.runtime.captures.warmup import warm_up, with_fused
from torch_ort_session.runtime.dispatch.state import Machine
from torch_ort_session.runtime.interpreter.program import Program
from torch_ort_session.runtime.values.signature import signature_of


def plan_of(
    machine: Machine,
    program: Program,
    outputs: tuple[str, ...],
    keys: frozenset[str],
    fed: Mapping[str, Value],
) -> Plan:
    """Run once, eagerly, and plan what was seen; nothing is captured, and no entry of the policy changes.

    Args:
        machine: What runs need.
        program: The steps for these outputs, whatever the signature.
        outputs: Requested output names.
        keys: Names of feeds whose value may be part of the signature.
        fed: Feeds.

    Returns:
        The plan for the signature of these feeds, with the operators that are quarantined by now as seams.

    Raises:
        KernelError: A kernel failed.
    """
    policy = machine.policy
    signature = signature_of(outputs, fed, policy.active(keys))
    graph, build = machine.graph, machine.build
    warm, _ = warm_up(graph, build, program, outputs, signature.keys, fed, machine.minimum, policy.loose)
    quarantined = frozenset(policy.quarantined)
    warm = with_fused(warm, machine.device, quarantined, policy.rules.fuse)
    return make_plan(
        warm.program.steps,
        warm.taint,
        warm.observation,
        machine.device,
        quarantined=quarantined,
        minimum=machine.minimum,
        keys=warm.keys,
        loose=warm.loose,
    )
