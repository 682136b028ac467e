"""The one place where index preconditions are met."""

from __future__ import annotations

import torch

from torch_ort_session.ops.kernel import KernelContext

EMPTY_AXIS = "the indexed axis is empty, so that no index is valid"


def check_index(index: torch.Tensor, size: int, ctx: KernelContext) -> torch.Tensor:
    """Wrap negative indices once and keep indices outside of the axis from reaching a kernel of torch's.

    In a run that is validated a bad index goes into the session's validation word, to be raised after the
    run, and the index read instead is a harmless one. In any other on the CPU torch's own gathers refuse it
    with a Python error; on a device that would be an assert that kills the process, so it is clamped there.

    Where :func:`torch_refuses`, an index below ``-size`` is still negative afterwards, so the result belongs
    into a function that refuses negatives (``index_select``, ``gather``, ``scatter``, ``embedding``), never
    into ``x[index]``.

    Args:
        index: Integer tensor of any shape; values in ``[-size, size)``.
        size: Length of the indexed axis.
        ctx: Context of the running kernel, which must be declared with ``checks=True``.

    Returns:
        The index with negatives wrapped, of the same shape; int64, or the dtype of ``index``.

    Raises:
        IndexError: The axis is empty, and an index is given; not where :func:`torch_refuses`.
    """
    validation = ctx.validation
    if validation is not None and validation.on:
        return validation.check_index(index, size, ctx.node)
    # The shift is -1 for a negative index and 0 for any other: two small ops where a comparison takes three.
    place = torch.sub(index, index >> 63, alpha=size)
    if index.device.type in _REFUSING:
        return place
    if size == 0 and index.numel():
        raise IndexError(EMPTY_AXIS)
    return place.clamp(0, max(size - 1, 0))


def take(data: torch.Tensor, index: torch.Tensor, ctx: KernelContext) -> torch.Tensor:
    """The entries of a vector that an index names, as in arithmetic on shapes, where each call counts.

    Args:
        data: Vector.
        index: int64 of any shape; values in ``[-size, size)``.
        ctx: Context of the running kernel, which must be declared with ``checks=True``.

    Returns:
        Of the index's shape.
    """
    if torch_refuses(index, ctx):
        return torch.take(data, index)
    if data.is_cpu and not torch._C._len_torch_dispatch_stack():
        try:
            return torch.take(data, index)
        except IndexError:
            # Good indices cost no check. A recording, which is watched, must not raise in a replay.
            pass
    return torch.take(data, check_index(index, data.shape[0], ctx))


def torch_refuses(index: torch.Tensor, ctx: KernelContext) -> bool:
    """Whether torch alone refuses a bad index, so that the index may be handed on as it came."""
    return (ctx.validation is None or not ctx.validation.on) and index.device.type in _REFUSING


_REFUSING = ("cpu", "meta")
