"""What a torch op's schema says about recording it, worked out once an op."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload

_EMPTIES = frozenset(
    {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
)
_COPIES = frozenset({"aten::clone", "aten::_to_copy"})
_OVERWRITES = frozenset(
    (
        *("copy_", "fill_", "zero_", "index_copy_", "index_fill_", "index_put_", "scatter_", "masked_fill_"),
        *("masked_scatter_", "put_", "_foreach_copy_", "_foreach_zero_"),
        *("scatter", "index_copy", "index_put", "put"),
    )
)
"""Ops that write places of their first argument, or of a copy of it, without a look at what was there."""

_FORMS = frozenset({"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"})
"""Ops that read no more of their first argument than its form."""

_DYNAMIC = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)


@dataclass(frozen=True, slots=True)
class Into:
    """The op that writes the same results into given tensors.

    Its arguments are the call's, then `more`, then those tensors.

    Attributes:
        name: Qualified name.
        overload: Overload.
        more: Further arguments.
    """

    name: str
    overload: str
    more: tuple[Any, ...] = ()


# Ops that torch itself computes by these, without an overload of their own that writes into a tensor, and
# those of the extension that take memory in which one of their arguments lies.
_WRITERS = {
    "aten::relu": Into("aten::clamp_min", "out", (0,)),
    "aten::stack": Into("aten::stack", "out"),
    "torch_ort_session::elementwise_chain": Into("torch_ort_session::elementwise_chain", "out"),
}


@dataclass(frozen=True, slots=True)
class OpFacts:
    """One op overload, as a recorder sees it.

    Attributes:
        name: Qualified name, such as ``aten::add``, and the overload, such as ``Tensor``.
        arguments: Name and default of each argument, in order.
        refusal: Why no call of it can be recorded; empty when some can.
        random: Whether it draws random numbers, unless an argument turns that off.
        writes: Whether it writes into an argument.
        views: Whether its result may be an argument's alias.
        uninitialised: Whether its result's content means nothing.
        into: What writes the same results into given tensors on the CPU; None when nothing does.
        dtype: Place of a ``dtype`` argument; -1 when it has none.
        copies: Whether it is a plain copy.
        pointwise: Whether each element of its result follows from those at the same place of its arguments.
        unread: Places of the tensors whose data it does not read.
    """

    name: tuple[str, str]
    arguments: tuple[tuple[str, Any], ...]
    refusal: str
    random: bool
    writes: bool
    views: bool
    uninitialised: bool
    into: Into | None
    dtype: int
    copies: bool
    pointwise: bool
    unread: frozenset[int]

    @property
    def masks(self) -> bool:
        """Whether its result's shape depends on data only where an index is a mask."""
        return self.name[0] == "aten::index"

    def full(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """A call's arguments by place, with defaults filled in."""
        given = len(args)
        return [
            args[i] if i < given else kwargs.get(name, default)
            for i, (name, default) in enumerate(self.arguments)
        ]


@functools.cache
def facts_of(op: OpOverload) -> OpFacts:
    """Read an op's schema and tags."""
    schema = op._schema
    namespace, _, base = schema.name.partition("::")
    arguments = tuple((a.name, a.default_value if a.has_default_value() else None) for a in schema.arguments)
    writes = any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)
    names = [name for name, _ in arguments]
    return OpFacts(
        name=(schema.name, schema.overload_name),
        arguments=arguments,
        refusal=_refusal(op, schema.name == "aten::index"),
        random=torch.Tag.nondeterministic_seeded in op.tags
        or any("Generator" in str(a.type) for a in schema.arguments),
        writes=writes,
        # Some of torch's own ops alias without saying so (_unsafe_view, lift).
        views=namespace == "aten" or any(r.alias_info is not None for r in schema.returns),
        uninitialised=namespace == "aten" and base in _EMPTIES,
        into=None if writes else _into(op),
        dtype=names.index("dtype") if "dtype" in names else -1,
        copies=schema.name in _COPIES,
        pointwise=torch.Tag.pointwise in op.tags,
        unread=_unread(op),
    )


def _refusal(op: OpOverload, masks: bool) -> str:
    if torch.Tag.inplace_view in op.tags:
        return "it changes a tensor's shape in place"
    if not masks and any(tag in op.tags for tag in _DYNAMIC):
        return "its result's shape or value on the host depends on data"
    if any("Tensor" not in str(r.type) for r in op._schema.returns):
        return "it gives data to the host"
    return ""


def _unread(op: OpOverload) -> frozenset[int]:
    schema = op._schema
    namespace, _, base = schema.name.partition("::")
    if namespace == "aten" and base in _FORMS | _OVERWRITES:
        return frozenset({0})
    # An op of somebody else's may use an argument that it writes as it likes; torch's own update it.
    written = (a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)
    return frozenset(
        place
        for place, (argument, writes) in enumerate(zip(schema.arguments, written, strict=True))
        if argument.is_out or (writes and namespace != "aten")
    )


def _into(op: OpOverload) -> Into | None:
    """The overload with the same arguments and one more for each result, if it has a kernel of its own."""
    schema = op._schema
    if schema.name in _WRITERS:
        return _WRITERS[schema.name]
    if (
        not schema.name.startswith("aten::")
        or not schema.returns
        or any(str(r.type) != "Tensor" for r in schema.returns)
    ):
        return None
    own = [(a.name, str(a.type)) for a in schema.arguments]
    packet = op.overloadpacket
    for name in packet.overloads():
        other = getattr(packet, name)._schema
        outs = [a for a in other.arguments if a.is_out]
        rest = [(a.name, str(a.type)) for a in other.arguments if not a.is_out]
        if len(outs) != len(schema.returns) or rest != own:
            continue
        # A composite one would call the functional op and copy.
        if torch._C._dispatch_has_kernel_for_dispatch_key(f"{schema.name}.{name}", "CPU"):
            return Into(schema.name, str(name))
    return None
