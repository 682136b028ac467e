"""Placement: which values stay on the CPU when a session runs on a device.

Shapes, axes and trip counts are wanted as Python numbers, and reading one from a device waits for it. So
what follows from ``Shape`` and small constants alone is computed on the CPU, as a few tiny torch ops, and is
copied to the device only where a kernel there reads it as data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from torch_ort_session.ir.graph import Weight
from torch_ort_session.ops.kernel import InputParam, Kernel, KernelContext, kernel, kernels_of

_SMALL = 1024
"""Elements up to which a constant is taken to be a shape or a scalar that may live on either side."""


@kernel("ToDevice", domain="torch_ort_session", since=(1,), seam="a copy across devices")
def to_device(value: torch.Tensor, *, ctx: KernelContext) -> torch.Tensor:
    """Copy a host value to the session's device."""
    return value.to(ctx.device)


TO_DEVICE: Kernel = kernels_of(to_device)[0]


@dataclass(slots=True)
class Placement:
    """Where the values of one scope live.

    Attributes:
        device: The session's device; on the CPU nothing needs placing.
        host: Ids of values on the CPU.
        either: Ids of small constants, which may be had on both sides.
        copies: The device copy of a host value, by its id.
    """

    device: torch.device
    host: set[int] = field(default_factory=set)
    either: set[int] = field(default_factory=set)
    copies: dict[int, int] = field(default_factory=dict)

    @property
    def needed(self) -> bool:
        """Whether host and device differ."""
        return self.device.type != "cpu"

    def note_constant(self, value: int, weight: Weight) -> None:
        """Note a constant of the scope."""
        if isinstance(weight.data, torch.Tensor) and weight.data.numel() <= _SMALL:
            self.either.add(value)

    def runs_on_host(self, kernel: Kernel, params: Sequence[InputParam], inputs: Sequence[int]) -> bool:
        """Whether a step has only host values to work on, so that its results are host values too."""
        if kernel.host_result:
            return True
        if kernel.varies or kernel.seam is not None:
            return False
        tensors = [
            value for param, value in zip(params, inputs, strict=False) if param.host is None and value != 0
        ]
        return any(value in self.host for value in tensors) and all(
            value in self.host or value in self.either for value in tensors
        )
