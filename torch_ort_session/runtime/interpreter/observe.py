"""The observed run: eager, and noting what every value was."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import torch

from torch_ort_session.plan.analysis import Observation, Spec, spec_of
from torch_ort_session.runtime.interpreter.program import Frame, Program, raise_failure

_Tensor = torch.Tensor
_new = tuple.__new__


def observe(program: Program, values: Frame, static: Collection[int] = ()) -> Observation:
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
    notes = _Notes(values)
    for value, held in enumerate(values):
        if held is not None:
            notes.note(value, held)
    kept_ids = frozenset(static)
    kept: dict[int, Any] = {}
    bound = None
    specs, owners, views = notes.specs, notes.owners, notes.views
    try:
        for bound in program.calls:
            bound.call(values)
            for value in bound.step.outputs:
                held = values[value]
                if isinstance(held, _Tensor):
                    # As in `_Notes.note`, written out: a call a value takes longer than the rest of it.
                    storage = held.untyped_storage()
                    address = storage._cdata
                    owner = owners.setdefault(address, value)
                    if owner != value:
                        if values[owner] is None and owner not in views:
                            owners[address] = owner = value
                        else:
                            owner = notes.owner(value, owner, address)
                    specs[value] = _new(
                        Spec,
                        (
                            held.dtype,
                            held.shape,
                            held.stride(),
                            held.storage_offset(),
                            held.device,
                            storage.nbytes(),
                            owner,
                        ),
                    )
                else:
                    notes.note(value, held)
                if kept_ids and value in kept_ids:
                    kept[value] = held
            for value in bound.release:
                values[value] = None
    except Exception as error:
        if bound is None:
            raise
        raise_failure(bound.step, program.steps, values, error)
    return Observation(tuple(specs), notes.kinds, kept)


class _Notes:
    """Specs so far, and which value owns each storage. Lives as long as the observed run.

    Attributes:
        values: The frame that is observed: a value is alive while it is there.
        specs: By value id.
        kinds: Of values that are no tensors.
        owners: The value that was first seen with each storage; it counts while a value of it is alive, for
            another storage may have the address afterwards.
        views: Values that lie in the storage of each owner that has such.
    """

    def __init__(self, values: Frame) -> None:
        self.values = values
        self.specs: list[Spec | None] = [None] * len(values)
        self.kinds: dict[int, str] = {}
        self.owners: dict[int, int] = {}
        self.views: dict[int, list[int]] = {}

    def note(self, value: int, held: Any) -> None:
        if isinstance(held, torch.Tensor):
            address = held.untyped_storage()._cdata
            owner = self.owners.setdefault(address, value)
            if owner != value:
                owner = self.owner(value, owner, address)
            self.specs[value] = spec_of(held, owner)
        elif isinstance(held, tuple):
            self.kinds[value] = "sequence"
            self.views[value] = []
            self.hold(value, held)
        elif isinstance(held, np.ndarray):
            self.kinds[value] = "strings"
        elif value:
            self.kinds[value] = "absent"

    def owner(self, value: int, known: int, address: int) -> int:
        """The owner of a storage at an address where ``known`` had one before."""
        views = self.views.get(known)
        alive = self.values[known] is not None
        if not alive and views is not None:
            alive = any(self.values[view] is not None for view in views)
        if alive:
            if views is None:
                self.views[known] = [value]
            else:
                views.append(value)
            return known
        self.owners[address] = value
        self.views.pop(known, None)
        return value

    def hold(self, value: int, items: tuple[Any, ...]) -> None:
        """Note that a sequence keeps the storages of its items alive."""
        for item in items:
            if isinstance(item, torch.Tensor):
                address = item.untyped_storage()._cdata
                known = self.owners.setdefault(address, value)
                if known != value:
                    self.owner(value, known, address)
            elif isinstance(item, tuple):
                self.hold(value, item)
