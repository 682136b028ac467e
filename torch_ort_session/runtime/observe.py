"""The observed run: eager, and noting what every value was."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import torch

from torch_ort_session.plan.specs import Observation, Spec, spec_of
from torch_ort_session.runtime.execute import Program, Values, raise_failure


def observe(program: Program, values: Values, static: Collection[int] = ()) -> Observation:
    """Run every step on ``values`` and note the specs.

    Args:
        program: What to run.
        values: The frame, with constants and feeds in place; holds the outputs afterwards.
        static: Ids of values to keep, because their data follows from the signature.

    Returns:
        Specs by value id, with views folded into the value that owns their storage.

    Raises:
        KernelError: A kernel failed.
    """
    notes = _Notes(len(values))
    for value, held in enumerate(values):
        notes.note(value, held)
    steps = program.steps
    kept: dict[int, Any] = {}
    lasting = notes.live
    for bound in program.calls:
        try:
            bound.call(values)
        except Exception as error:
            raise_failure(bound.step, steps, values, error)
        for value in bound.step.outputs:
            notes.note(value, values[value])
            if value in static:
                kept[value] = values[value]
        notes.peak = max(notes.peak, notes.live - lasting)
        for value in bound.release:
            notes.forget(value)
            values[value] = None
    return Observation(tuple(notes.specs), notes.kinds, kept, notes.peak)


class _Notes:
    """Specs so far, and which value owns each live storage."""

    def __init__(self, count: int) -> None:
        self.specs: list[Spec | None] = [None] * count
        self.kinds: dict[int, str] = {}
        self.owners: dict[int, int] = {}
        self.holders: dict[int, int] = {}
        self.live = 0
        self.peak = 0

    def note(self, value: int, held: Any) -> None:
        if isinstance(held, torch.Tensor):
            storage = held.untyped_storage()._cdata
            owner = self.owners.setdefault(storage, value)
            spec = self.specs[value] = spec_of(held, owner)
            count = self.holders.get(owner, 0)
            self.holders[owner] = count + 1
            if count == 0:
                self.live += spec.nbytes
        elif isinstance(held, tuple):
            self.kinds[value] = "sequence"
        elif isinstance(held, np.ndarray):
            self.kinds[value] = "strings"
        elif value:
            self.kinds[value] = "absent"

    def forget(self, value: int) -> None:
        """Note that a value is dropped: its storage's address may be had by another value from now on."""
        spec = self.specs[value]
        if spec is None:
            return
        self.holders[spec.owner] -= 1
        if self.holders[spec.owner] == 0:
            self.live -= spec.nbytes
            self.owners = {s: o for s, o in self.owners.items() if o != spec.owner}
