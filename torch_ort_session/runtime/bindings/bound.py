"""Bound tensors: what a binding holds of each tensor that is attached to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch

from torch_ort_session.errors import InputError
from torch_ort_session.runtime.values.signature import BoundForm

Role = Literal["input", "output", "state"]


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """One attached tensor, held for as long as the binding has it.

    Attributes:
        role: What it is to the model.
        source: The input that reads it; empty for an output.
        target: The output that is written to it; empty for an input.
        tensor: All of it, as its owner has it.
        plain: The same memory, without gradients and as no subclass.
        capacity_dim: The dim along which only the first entries are valid; None when all of it is.
        appended: Whether the model makes its new value by putting new entries behind the valid ones.
        marks: Where and what the tensor was when it was attached; see :func:`marks_of`.
    """

    role: Role
    source: str
    target: str
    tensor: torch.Tensor
    plain: torch.Tensor
    capacity_dim: int | None
    appended: bool
    marks: tuple[Any, ...]

    @property
    def name(self) -> str:
        """The name that messages call it by."""
        return self.source or self.target

    @property
    def key(self) -> tuple[str, str]:
        """The input and the output."""
        return self.source, self.target

    @property
    def label(self) -> str:
        """Both names, as messages show them."""
        return " -> ".join(repr(name) for name in self.key if name)

    @property
    def capacity(self) -> int:
        """Entries along the capacity dim; 0 without one."""
        return 0 if self.capacity_dim is None else self.tensor.shape[self.capacity_dim]

    def valid(self, length: int) -> torch.Tensor:
        """The part that counts when ``length`` entries do: a view, of all of it without a capacity dim."""
        dim = self.capacity_dim
        return self.plain if dim is None else self.plain.narrow(dim, 0, length)

    def form(self, length: int) -> BoundForm:
        """Its part of a signature."""
        pointer, dtype, device, shape, stride = self.marks
        logical = self.valid(length).shape
        nbytes = self.tensor.nbytes
        return BoundForm(self.name, self.role, dtype, shape, logical, stride, pointer, nbytes, device)

    def room(self, value: object, length: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        """Where this run's value goes.

        Args:
            value: What the model made.
            length: Valid entries before the run.

        Returns:
            The part to write, the part of the value to write there, and the valid entries afterwards.

        Raises:
            InputError: It does not fit.
        """
        tensor, dim = self.plain, self.capacity_dim
        if not isinstance(value, torch.Tensor):
            raise self.misfit("the new value is no tensor")
        if value.dtype != tensor.dtype or (dim is None and value.shape != tensor.shape):
            came, have = told(value), told(tensor)
            grows = self.role == "state" and value.dtype == tensor.dtype
            advice = "; a state that grows needs a capacity_dim" if grows else ""
            raise self.misfit(f"the new value is {came}, the bound tensor is {have}{advice}")
        if dim is None:
            return tensor, value, length
        others = [size for axis, size in enumerate(tensor.shape) if axis != dim]
        if value.dim() != tensor.dim() or [s for axis, s in enumerate(value.shape) if axis != dim] != others:
            came, have = told(value), told(tensor)
            raise self.misfit(f"the new value is {came}, which differs from {have} in more than dim {dim}")
        after = value.shape[dim]
        if after > self.capacity:
            raise self.misfit(
                f"the new value has {after} entries along dim {dim}, the bound tensor has room for "
                f"{self.capacity}; bind a larger tensor, or go back with set_length()"
            )
        if self.appended and after >= length:
            fresh = after - length
            return tensor.narrow(dim, length, fresh), value.narrow(dim, length, fresh), after
        return tensor.narrow(dim, 0, after), value, after

    def misfit(self, what: str) -> InputError:
        """An error that names this tensor."""
        return InputError(f"{self.role} {self.name!r}: {what}", name=self.name)


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor over the same memory, without gradients and as no subclass."""
    made = tensor.detach()
    return made if type(made) is torch.Tensor else made.as_subclass(torch.Tensor)


def marks_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What a recording bakes of a tensor: address, dtype, device, dims and strides."""
    return tensor.data_ptr(), tensor.dtype, tensor.device, tensor.shape, tensor.stride()


def short(dtype: torch.dtype) -> str:
    """A dtype without its module."""
    return str(dtype).removeprefix("torch.")


def told(tensor: torch.Tensor) -> str:
    """Dtype and dims of a tensor."""
    return f"{short(tensor.dtype)}{list(tensor.shape)}"
