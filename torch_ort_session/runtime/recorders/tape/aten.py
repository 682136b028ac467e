"""Traits of torch ops that recording hangs on, read off their schemas once an op, and their `out` forms."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

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
class OpTraits:
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
        positional = len(args)
        return [
            args[i] if i < positional else kwargs.get(name, default)
            for i, (name, default) in enumerate(self.arguments)
        ]


@functools.cache
def traits_of(op: OpOverload) -> OpTraits:
    """Read an op's schema and tags."""
    schema = op._schema
    namespace, _, base = schema.name.partition("::")
    arguments = tuple((a.name, a.default_value if a.has_default_value() else None) for a in schema.arguments)
    writes = any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)
    names = [name for name, _ in arguments]
    return OpTraits(
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


OpCall: TypeAlias = tuple[str, str, list[Any]]
"""An op's qualified name, its overload, and arguments for its whole schema."""

_Variant: TypeAlias = Callable[[list[Any], torch.Tensor], list[OpCall]]


def out_variants(name: tuple[str, str], full: list[Any], results: Sequence[torch.Tensor]) -> list[OpCall]:
    """The calls that write the result of an op into the tensor that it gave.

    Args:
        name: Qualified name of the op, and its overload.
        full: Its arguments.
        results: What it gave, in memory of its own.

    Returns:
        The calls in order; none where there is no such way.
    """
    variant = _OUT_VARIANTS.get(name)
    if variant is None or len(results) != 1 or any(_lazy(a) for a in (*full, *results)):
        return []
    return variant(full, results[0])


def _lazy(value: object) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_conj() or value.is_neg())


def _as(name: str, overload: str) -> _Variant:
    return lambda full, result: [(f"aten::{name}", overload, [*full, result])]


def _filled(value: Callable[[list[Any]], Any]) -> _Variant:
    return lambda full, result: [("aten::fill_", "Scalar", [result, value(full)])]


def _subtracted(full: list[Any], result: torch.Tensor) -> list[OpCall]:
    return [("aten::sub", "out", [full[1], full[0], full[2], result])]


def _unequal_to_itself(full: list[Any], result: torch.Tensor) -> list[OpCall]:
    return [("aten::ne", "Tensor_out", [full[0], full[0], result])]


def _counted(start: int, stop: int, step: int) -> _Variant:
    def variant(full: list[Any], result: torch.Tensor) -> list[OpCall]:
        first = 0 if start < 0 else full[start]
        stride = 1 if step < 0 else full[step]
        return [("aten::arange", "start_out", [first, full[stop], stride, result])]

    return variant


def _padded(full: list[Any], result: torch.Tensor) -> list[OpCall]:
    source, pads, value = full
    middle = result
    for back in range(len(pads) // 2):
        dim = source.dim() - 1 - back
        before, after = pads[2 * back], pads[2 * back + 1]
        for pad, low in ((before, True), (after, False)):
            if pad < 0:
                source = source.narrow(dim, -pad if low else 0, source.shape[dim] + pad)
            elif pad > 0:
                middle = middle.narrow(dim, pad if low else 0, middle.shape[dim] - pad)
    return [
        ("aten::fill_", "Scalar", [result, value]),
        ("aten::copy_", "", [middle, source, False]),
    ]


def _repeated(full: list[Any], result: torch.Tensor) -> list[OpCall]:
    source, repeats = full
    if not result.numel():
        return []
    source = source.expand((1,) * (len(repeats) - source.dim()) + tuple(source.shape))
    tiles = result
    for dim, size in enumerate(source.shape):
        tiles = tiles.unfold(dim, size, size)
    return [("aten::copy_", "", [tiles, source.expand_as(tiles), False])]


def _put(full: list[Any], result: torch.Tensor) -> list[OpCall]:
    source, *rest = full
    return [("aten::copy_", "", [result, source, False]), ("aten::index_put_", "", [result, *rest])]


_OUT_VARIANTS: dict[tuple[str, str], _Variant] = {
    **{
        (f"aten::{name}", overload): _as(into, "Tensor_out")
        for name, into in (
            *(
                (f"bitwise_{way}", f"bitwise_{way}")
                for way in ("and", "or", "xor", "left_shift", "right_shift")
            ),
            *((f"__{way}__", f"bitwise_{way}") for way in ("and", "or", "xor")),
            *(("__lshift__", "bitwise_left_shift"), ("__rshift__", "bitwise_right_shift")),
            ("remainder", "remainder"),
        )
        for overload in ("Scalar", "Tensor")
        if not (overload == "Tensor" and name == into)
    },
    ("aten::rsub", "Scalar"): _subtracted,
    ("aten::rsub", "Tensor"): _subtracted,
    ("aten::isnan", ""): _unequal_to_itself,
    ("aten::zeros", ""): _filled(lambda full: 0),
    ("aten::zeros_like", ""): _filled(lambda full: 0),
    ("aten::new_zeros", ""): _filled(lambda full: 0),
    ("aten::ones", ""): _filled(lambda full: 1),
    ("aten::ones_like", ""): _filled(lambda full: 1),
    ("aten::new_ones", ""): _filled(lambda full: 1),
    ("aten::full", ""): _filled(lambda full: full[1]),
    ("aten::full_like", ""): _filled(lambda full: full[1]),
    ("aten::new_full", ""): _filled(lambda full: full[2]),
    ("aten::scalar_tensor", ""): _filled(lambda full: full[0]),
    ("aten::arange", ""): _counted(-1, 0, -1),
    ("aten::arange", "start"): _counted(0, 1, -1),
    ("aten::arange", "start_step"): _counted(0, 1, 2),
    ("aten::constant_pad_nd", ""): _padded,
    ("aten::repeat", ""): _repeated,
    ("aten::index_put", ""): _put,
}


_UNFOLDED = "aten::_slow_conv2d_forward"


def scratch_of(name: str, arguments: Sequence[Any]) -> int:
    """Bytes that a call takes for itself.

    Args:
        name: Qualified name of its op.
        arguments: Its arguments.

    Returns:
        The bytes; 0 where nothing is known of the op.
    """
    if name != _UNFOLDED:
        return 0
    x, _, kernel, _, strides, pads, result = arguments
    if not isinstance(x, torch.Tensor) or not isinstance(result, torch.Tensor):
        return 0
    if all(k == 1 for k in kernel) and all(s == 1 for s in strides) and not any(pads):
        return 0
    # The windows side by side, for one matrix product.
    windows = x.shape[0] * x.shape[1] * math.prod(kernel) * math.prod(result.shape[2:])
    return int(windows * x.element_size())
