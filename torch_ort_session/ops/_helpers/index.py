"""The one place where index preconditions are met."""

from __future__ import annotations

import torch

from torch_ort_session.ops.kernel import KernelContext


def check_index(index: torch.Tensor, size: int, ctx: KernelContext) -> torch.Tensor:
    """Wrap negative indices once and keep indices outside of the axis from reaching a device kernel.

    On the CPU torch's own gathers refuse an index outside of the axis with a Python error. On a device that
    would be an assert that kills the process, so the fault goes into the run's validation word instead, to be
    raised after the synchronisation, and the index read is a harmless one.

    An index below ``-size`` is still negative afterwards, so the result belongs into a function that refuses
    negatives (``index_select``, ``gather``, ``scatter``, ``embedding``), never into ``x[index]``.

    Args:
        index: Integer tensor of any shape; values in ``[-size, size)``.
        size: Length of the indexed axis.
        ctx: Context of the running kernel.

    Returns:
        The index with negatives wrapped, same shape and dtype.
    """
    if ctx.validation is not None:
        return ctx.validation.check_index(index, size, ctx.node)
    # The shift is -1 for a negative index and 0 for any other: two small ops where a comparison takes three.
    return torch.sub(index, index >> 63, alpha=size)
