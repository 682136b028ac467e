"""The machine: what the runs of one session need beyond a program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from torch_ort_session.ir.graph import Graph
from torch_ort_session.runtime.arena import Arena
from torch_ort_session.runtime.bodies import Bodies
from torch_ort_session.runtime.execute import Program
from torch_ort_session.runtime.memo import Memo
from torch_ort_session.runtime.policy import Policy
from torch_ort_session.runtime.recording import Recorder
from torch_ort_session.runtime.turns import Turns
from torch_ort_session.trace.tracer import Tracer


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Machine:
    """What runs need beyond a program.

    Attributes:
        graph: The graph that runs.
        build: Makes a program of a graph and output names.
        policy: Decides.
        recorder: Makes the recorder of a capture; a text says why there is none.
        arena: Memory that captures share, on the device where they run.
        required: Whether a run that cannot be captured is an error.
        minimum: Launches from which on a segment is worth recording.
        verify: Whether plans are checked, and the first replay on other feeds is compared with an eager run.
        tracer: Who watches.
        memo: What is kept of runs whose feeds grow.
        bodies: What is kept of control-flow bodies.
        turns: Whether a run is under way.
    """

    graph: Graph
    build: Callable[[Graph, tuple[str, ...]], Program]
    policy: Policy
    recorder: Callable[[], Recorder | str]
    arena: Arena
    required: bool = False
    minimum: int = 1
    verify: bool = False
    tracer: Tracer = field(default_factory=Tracer)
    memo: Memo = field(default_factory=Memo)
    bodies: Bodies = field(default_factory=Bodies)
    turns: Turns = field(default_factory=Turns)

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return self.arena.device

    def __post_init__(self) -> None:
        self.bodies.serve(self)

    def renewed(self) -> Machine:
        """The same, as before its first run."""
        policy = Policy(self.policy.rules)
        arena, bodies = Arena(self.device, self.arena.packing), self.bodies.renewed()
        fresh = replace(self, policy=policy, arena=arena, bodies=bodies)
        return replace(fresh, tracer=Tracer(), memo=Memo(), turns=Turns(self.turns.abandon))

    def for_body(self, policy: Policy, depth: int) -> Machine:
        """What records and replays a control-flow body, which is watched and counted as one step.

        Args:
            policy: Of the body.
            depth: How many bodies it lies in.
        """
        # What is captured around the body has values in its arena while this runs.
        arena = self.arena.inner
        for _ in range(depth):
            arena = arena.inner
        return replace(self, policy=policy, arena=arena, tracer=Tracer(), memo=Memo(), bodies=Bodies())


RandomState = tuple[torch.Tensor, ...]
"""The state of torch's own generators that a session's random steps draw from."""


def random_state(device: torch.device) -> RandomState:
    """The generators' state before a run that may have to be made again."""
    state = torch.get_rng_state()
    return (state, torch.cuda.get_rng_state(device)) if device.type == "cuda" else (state,)


def restore_random(device: torch.device, state: RandomState) -> None:
    """Put the generators back, so that what is run again draws what it drew."""
    torch.set_rng_state(state[0])
    if len(state) > 1:
        torch.cuda.set_rng_state(state[1], device)
