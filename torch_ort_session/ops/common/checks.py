"""Checks of integers that are no indices counted from the end: bounds, and no division by zero."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from torch_ort_session.ir.graph import Node
from torch_ort_session.ir.types import ElementType
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.common.widen import same_bits
from torch_ort_session.ops.kernel import KernelContext, Validation, Value

NOTHING_VALID = "there is nothing, so that no number is valid"


def check_range(values: Tensor, low: int, high: int, flag: Flag, ctx: KernelContext) -> Tensor:
    """Keep numbers outside of ``[low, high]`` from reaching a kernel of torch's.

    In a run that is validated the first one goes into the session's validation word, to be raised after the
    run. In any other on the CPU it is refused with a Python error; on a device, where an assertion would end
    the process, it is clamped.

    Args:
        values: Integer tensor of any shape.
        low: The least valid number.
        high: The greatest valid number.
        flag: What it is to the user.
        ctx: Context of the running kernel, which must be declared with ``checks=``.

    Returns:
        int64 of the same shape, in ``[low, high]``.

    Raises:
        IndexError: No number is valid, and one is given.
        RuntimeError: A number lies outside, and the run notes no bad data.
    """
    validation = ctx.validation
    if validation is not None and validation.on:
        return validation.check_range(values, low, high, flag, ctx.node)
    wide = values.to(torch.int64)
    if low > high:
        if values.numel():
            raise IndexError(NOTHING_VALID)
        return wide
    safe = wide.clamp(low, high)
    if wide.is_cpu and not torch._C._functorch.is_functorch_wrapped_tensor(wide):
        torch._assert_async((safe == wide).all(), f"{flag.what} is outside of [{low}, {high}]")
    return safe


def check_places(index: Tensor, size: int, flag: Flag, ctx: KernelContext) -> Tensor:
    """As :func:`check_range` does it, for an index into ``size`` entries that does not count from the end."""
    return check_range(index, 0, size - 1, flag, ctx)


def check_lengths(lengths: Tensor | None, most: int, ctx: KernelContext) -> Tensor | None:
    """Lengths in ``[0, most]``, as :func:`check_range` does it; None where there are none."""
    return None if lengths is None else check_range(lengths, 0, most, Flag.LENGTH, ctx)


def check_each(good: Tensor, flag: Flag, ctx: KernelContext) -> bool:
    """Note the place of the first bad one of some items, where the run notes bad data.

    Args:
        good: bool, whether each is.
        flag: What a bad one is to the user.
        ctx: Context of the running kernel, which must be declared with ``checks=``.

    Returns:
        Whether the run notes bad data; then torch must not see the bad ones. Otherwise it refuses them.
    """
    validation = ctx.validation
    if validation is None or not validation.on:
        return False
    place = torch.arange(good.numel(), device=good.device).reshape(good.shape)
    validation.check_range(torch.where(good, -1, place), -1, -1, flag, ctx.node)
    return True


def check_divisor(dividend: Tensor, divisor: Tensor, ctx: KernelContext) -> Tensor:
    """A divisor whose zeros are noted and replaced by 1; on the CPU torch refuses them where none are noted.

    Args:
        dividend: What is divided; nothing is wrong with a divisor of nothing.
        divisor: Integers of any shape and width.
        ctx: Context of the running kernel, declared with ``checks=divides_integers``.
    """
    validation = ctx.validation
    if validation is None or not validation.on or not dividend.numel():
        return divisor
    bits = same_bits(divisor)
    whole = bits != 0
    validation.check_range(whole.view(torch.uint8), 1, 1, Flag.DIVISION, ctx.node)
    return bits.masked_fill(~whole, 1).view(divisor.dtype)


def divides_integers(
    node: Node, types: Sequence[ElementType | None], constants: Sequence[Value], validation: Validation
) -> bool:
    """Whether the second input of a node may be an integer zero, for ``checks=``."""
    kind, divisor = types[1], constants[1]
    if isinstance(divisor, Tensor):
        if divisor.is_floating_point():
            return False
        return divisor.is_meta or not bool((same_bits(divisor) != 0).all())
    return kind is None or not kind.is_float


def looks_at_floats(
    node: Node, types: Sequence[ElementType | None], constants: Sequence[Value], validation: Validation
) -> bool:
    """Always, for ``checks=`` of kernels that look at floats too."""
    return True


def has_input(
    *places: int,
) -> Callable[[Node, Sequence[ElementType | None], Sequence[Value], Validation], bool]:
    """Whether a node has one of some optional inputs, for ``checks=``."""

    def has_one(
        node: Node, types: Sequence[ElementType | None], constants: Sequence[Value], validation: Validation
    ) -> bool:
        return any(place < len(node.inputs) and node.inputs[place] != "" for place in places)

    return has_one


def counts_routes(
    node: Node, types: Sequence[ElementType | None], constants: Sequence[Value], validation: Validation
) -> bool:
    """Whether the choices of a mixture's experts are counted, for ``checks=``."""
    return validation.counting


def note_routes(experts: Tensor, count: int, ctx: KernelContext) -> None:
    """Count the experts that a mixture chose, where they are counted.

    Args:
        experts: int64 of any shape.
        count: How many there are.
        ctx: Context of the running kernel, which must be declared with ``checks=counts_routes``.
    """
    validation = ctx.validation
    if validation is not None and validation.on and validation.counting:
        validation.count_routes(experts, count, ctx.node)
