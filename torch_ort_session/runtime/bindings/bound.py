"""Bound tensors: what a binding holds of each tensor that is attached to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from torch_ort_session.errors import InputError, meant
from torch_ort_session.ir.graph import Graph, ValueInfo
from torch_ort_session.ir.types import OptionalType, TensorType, describe
from torch_ort_session.runtime.values import BoundForm, convert, overlap, overlaps_itself

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
            came, have = tensor_text(value), tensor_text(tensor)
            grows = self.role == "state" and value.dtype == tensor.dtype
            advice = "; a state that grows needs a capacity_dim" if grows else ""
            raise self.misfit(f"the new value is {came}, the bound tensor is {have}{advice}")
        if dim is None:
            return tensor, value, length
        others = [size for axis, size in enumerate(tensor.shape) if axis != dim]
        if value.dim() != tensor.dim() or [s for axis, s in enumerate(value.shape) if axis != dim] != others:
            came, have = tensor_text(value), tensor_text(tensor)
            raise self.misfit(f"the new value is {came}, which differs from {have} in more than dim {dim}")
        after = value.shape[dim]
        if after > self.capacity:
            raise self.misfit(
                f"the new value has {after} entries along dim {dim}, the bound tensor has room for "
                f"{self.capacity}; bind a larger tensor, or go back with set_length()"
            )
        if self.appended and after >= length:
            entries = after - length
            return tensor.narrow(dim, length, entries), value.narrow(dim, length, entries), after
        return tensor.narrow(dim, 0, after), value, after

    def misfit(self, what: str) -> InputError:
        """An error that names this tensor."""
        return InputError(f"{self.role} {self.name!r}: {what}", name=self.name)


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor over the same memory, without gradients and as no subclass."""
    detached = tensor.detach()
    return detached if type(detached) is torch.Tensor else detached.as_subclass(torch.Tensor)


def marks_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What a recording bakes of a tensor: address, dtype, device, dims and strides."""
    return tensor.data_ptr(), tensor.dtype, tensor.device, tensor.shape, tensor.stride()


def short(dtype: torch.dtype) -> str:
    """A dtype without its module."""
    return str(dtype).removeprefix("torch.")


def tensor_text(tensor: torch.Tensor) -> str:
    """Dtype and dims of a tensor."""
    return f"{short(tensor.dtype)}{list(tensor.shape)}"


def bind_input(graph: Graph, name: str, tensor: object, device: torch.device) -> Bound:
    """Check a tensor that the model reads in place.

    Args:
        graph: The graph that runs.
        name: An input's name.
        tensor: Any strides; dtype and dims of the input.
        device: Where the session wants it.

    Raises:
        InputError: Unknown name, no plain tensor, wrong device, dtype, rank or static dim.
    """
    info = _find(graph.inputs, name, "input")
    checked = _plain("input", name, info, tensor, device)
    _check_type(f"input {name!r}", info, checked.dtype, tuple(checked.shape))
    return Bound("input", name, "", checked, plain(checked), None, False, marks_of(checked))


def bind_output(graph: Graph, name: str, tensor: object, device: torch.device) -> Bound:
    """Check a tensor that every run writes an output to.

    Args:
        graph: The graph that runs.
        name: An output's name.
        tensor: Any strides, without elements that share memory; dtype and dims of the output.
        device: Where the session runs.

    Raises:
        InputError: Unknown name, no plain tensor, wrong device, dtype, rank or static dim, unwritable memory.
    """
    info = _find(graph.outputs, name, "output")
    checked = _plain("output", name, info, tensor, device)
    _check_type(f"output {name!r}", info, checked.dtype, tuple(checked.shape))
    _check_writable("output", name, checked)
    return Bound("output", "", name, checked, plain(checked), None, False, marks_of(checked))


def bind_state(
    graph: Graph,
    names: tuple[str, str],
    tensor: object,
    room: tuple[int | None, int],
    device: torch.device,
) -> Bound:
    """Check a tensor that is an input and the output that the next run reads as that input.

    Args:
        graph: The graph that runs.
        names: Of the input (past) and of the output (present).
        tensor: Any strides, without elements that share memory.
        room: The capacity dim, or None, and how many entries along it are valid.
        device: Where the session wants it.

    Raises:
        InputError: As for inputs and outputs; also when past and present disagree, the capacity dim does not
            exist, or the length does not fit.
    """
    past, present = names
    source = _find(graph.inputs, past, "input")
    target = _find(graph.outputs, present, "output")
    checked = _plain("state", past, source, tensor, device)
    _plain("state", present, target, tensor, checked.device)
    dim = _capacity_dim(past, checked, room)
    _check_agree(source, target, dim)
    shape = list(checked.shape)
    if dim is not None:
        shape[dim] = room[1]
    label = f"state {past!r}"
    _check_type(label, source, checked.dtype, tuple(shape))
    if dim is not None:
        present_type = _tensor_type(target)
        dims = None if present_type is None else present_type.shape
        size = None if dims is None else dims[dim]
        if isinstance(size, int) and size > checked.shape[dim]:
            holds = checked.shape[dim]
            text = f"{label}: {present!r} is {size} long along dim {dim} and the tensor holds {holds}"
            raise InputError(text, name=past, got=str(holds), expected=str(size))
        shape[dim] = size if isinstance(size, int) else room[1]
    _check_type(f"state {present!r}", target, checked.dtype, tuple(shape))
    _check_writable("state", past, checked)
    appended = dim is not None and _appends(graph, past, present, dim, checked.dim())
    return Bound("state", past, present, checked, plain(checked), dim, appended, marks_of(checked))


def fitting(graph: Graph, bound: Bound, value: object) -> torch.Tensor:
    """What a user writes into a bound tensor, as a tensor where that one is.

    Raises:
        InputError: It is of another type than the model's input or output.
    """
    infos = graph.inputs if bound.source else graph.outputs
    info = next(info for info in infos if info.name == bound.name)
    tensor = convert(info, value, bound.tensor.device, {})
    if not isinstance(tensor, torch.Tensor):
        raise bound.misfit("the new value is no tensor")
    return tensor


def check_apart(new: Bound, others: Iterable[Bound]) -> None:
    """Refuse memory that one bound tensor writes and another one has; two inputs may share theirs.

    Raises:
        InputError: It names both.
    """
    for other in others:
        read_only = new.role == "input" and other.role == "input"
        if not read_only and overlap(new.tensor, other.tensor):
            raise InputError(
                f"{new.role} {new.name!r} shares memory with {other.role} {other.name!r}, and a run would "
                "write one while the other is in use; give each its own memory (an output that is the next "
                "run's input is bound once, with state())",
                name=new.name,
                got=other.name,
            )


def check_name(name: object) -> None:
    """Refuse a name that is no text.

    Raises:
        InputError: It is something else.
    """
    if not isinstance(name, str):
        kind = type(name).__name__
        raise InputError(f"a name is a text, not the {kind} {name!r}", got=kind, expected="a text")


def _find(infos: Iterable[ValueInfo], name: str, kind: str) -> ValueInfo:
    check_name(name)
    ports = {info.name: info for info in infos}
    if name in ports:
        return ports[name]
    hint = meant(name, ports)
    listed = ", ".join(map(repr, ports)) or "none"
    text = f"the model has no {kind} {name!r}{hint} (its {kind}s: {listed})"
    raise InputError(text, name=name, got=name, expected=listed)


def _tensor_type(info: ValueInfo) -> TensorType | None:
    kind = info.type
    while isinstance(kind, OptionalType):
        kind = kind.item
    return kind if isinstance(kind, TensorType) else None


def _plain(role: str, name: str, info: ValueInfo, tensor: object, device: torch.device) -> torch.Tensor:
    label = f"{role} {name!r}"
    kind = _tensor_type(info)
    if info.type is not None and (kind is None or not (kind.element.torch_dtype or not kind.element)):
        shown = describe(info.type)
        text = f"{label} is a {shown}, and only tensors can be bound; feed or read it run by run"
        raise InputError(text, name=name, expected="a tensor", got=shown)
    if not isinstance(tensor, torch.Tensor):
        got = type(tensor).__name__
        text = f"{label}: got a value of type {got}; bind a torch tensor: a copy would not be what you hold"
        raise InputError(text, name=name, expected="a torch tensor", got=got)
    intercepts = type(tensor).__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        text = (
            f"{label}: bind a plain dense tensor, not one that a function transform is under way on (vmap, "
            "grad, jvp)"
        )
        raise InputError(text, name=name, expected="a dense tensor")
    if tensor.layout != torch.strided or tensor.is_nested or tensor.is_quantized or intercepts:
        got = type(tensor).__name__ if intercepts else f"a {tensor.layout} tensor"
        text = f"{label}: bind a plain dense tensor, not {got}"
        raise InputError(text, name=name, expected="a dense tensor", got=got)
    if tensor.device != device:
        text = f"{label}: the tensor is on {tensor.device} and must be on {device}, where the model uses it"
        raise InputError(text, name=name, expected=str(device), got=str(tensor.device))
    if tensor.is_neg() or tensor.is_conj():
        text = (
            f"{label}: the tensor is a lazy negation or conjugate; bind tensor.resolve_neg().resolve_conj()"
        )
        raise InputError(text, name=name)
    if tensor.is_inference() and role != "input":
        text = f"{label}: the tensor was made in inference mode and cannot be written outside of it"
        raise InputError(text, name=name)
    _check_there(label, name, tensor)
    return tensor


def _check_there(label: str, name: str, tensor: torch.Tensor) -> None:
    """Refuse a tensor whose storage was made smaller than it: to touch it would end the process."""
    if not tensor.numel():
        return
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    needed = (tensor.storage_offset() + last + 1) * tensor.element_size()
    there = tensor.untyped_storage().nbytes()
    if there < needed:
        text = (
            f"{label}: the tensor needs {needed} bytes of its storage, which has {there}: its memory was "
            "freed or made smaller; bind a tensor that has its memory"
        )
        raise InputError(text, name=name, got=str(there), expected=str(needed))


def _check_type(label: str, info: ValueInfo, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    kind = _tensor_type(info)
    if kind is None or not kind.element:
        return
    expected = describe(kind)

    def wrong(got: str, why: str) -> InputError:
        text = f"{label}: got {got}, expected {expected}; {why}"
        return InputError(text, name=info.name, got=got, expected=expected)

    expected_dtype = kind.element.torch_dtype
    if dtype != expected_dtype:
        raise wrong(f"dtype {short(dtype)}", f"bind a {expected_dtype} tensor: nothing is cast")
    if kind.shape is None:
        return
    if len(kind.shape) != len(shape):
        raise wrong(f"shape {list(shape)} of rank {len(shape)}", f"the model expects rank {len(kind.shape)}")
    for axis, (dim, size) in enumerate(zip(kind.shape, shape, strict=True)):
        if isinstance(dim, int) and dim != size:
            raise wrong(f"shape {list(shape)}", f"dim {axis} is {size} and must be {dim}")


def _check_writable(role: str, name: str, tensor: torch.Tensor) -> None:
    if overlaps_itself(tensor):
        raise InputError(
            f"{role} {name!r}: elements of the tensor share memory (an expanded tensor?), so that it cannot "
            "be written; bind tensor.contiguous()",
            name=name,
        )


def _capacity_dim(name: str, tensor: torch.Tensor, room: tuple[int | None, int]) -> int | None:
    dim, length = room

    def wrong(text: str) -> InputError:
        return InputError(f"state {name!r}: {text}", name=name)

    if not is_count(length):
        raise wrong(f"length must be a non-negative int, got {length!r}")
    if dim is None:
        if length:
            raise wrong("a length needs a capacity_dim to count along")
        return None
    if not isinstance(dim, int) or isinstance(dim, bool) or not -tensor.dim() <= dim < tensor.dim():
        raise wrong(f"capacity_dim {dim!r} is no dim of a tensor of rank {tensor.dim()}")
    dim %= tensor.dim()
    if length > tensor.shape[dim]:
        raise wrong(f"the tensor holds {tensor.shape[dim]} along dim {dim}, fewer than the length {length}")
    return dim


def is_count(value: object) -> bool:
    """Whether it is a non-negative int, and no bool."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _check_agree(past: ValueInfo, present: ValueInfo, dim: int | None) -> None:
    before, after = _tensor_type(past), _tensor_type(present)
    if before is None or after is None or not before.element or not after.element:
        return
    agree = before.element == after.element
    if before.shape is not None and after.shape is not None:
        agree = agree and len(before.shape) == len(after.shape)
        for axis, (a, b) in enumerate(zip(before.shape, after.shape, strict=False)):
            agree = agree and (axis == dim or a == b or not (isinstance(a, int) and isinstance(b, int)))
    if not agree:
        but = "" if dim is None else f" but for dim {dim}"
        raise InputError(
            f"state {past.name!r}: the model reads {describe(before)} and makes {present.name!r} as "
            f"{describe(after)}; a state is one tensor, so the two must agree{but}",
            name=past.name,
            got=describe(after),
            expected=describe(before),
        )


def _appends(graph: Graph, past: str, present: str, dim: int, rank: int) -> bool:
    """Whether the present is a concatenation that begins with the past, and so need not be copied whole."""
    makers = {name: node for node in graph.nodes for name in node.outputs if name}
    node = makers.get(_origin(present, makers.get))
    if node is None or node.op != "Concat" or node.domain != "":
        return False
    axis = node.attributes.get("axis", 1)
    same = isinstance(axis, int) and axis % rank == dim
    return same and _origin(node.inputs[0], makers.get) == past


def _origin(name: str, maker: Callable[[str], Any]) -> str:
    """The value that a chain of Identity hands on."""
    while (node := maker(name)) is not None and node.op == "Identity" and node.domain == "":
        name = node.inputs[0]
    return name
