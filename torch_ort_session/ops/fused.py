"""The kernel of fused steps, which no model names: a plan makes nodes of it."""

from __future__ import annotations

from torch import Tensor

from torch_ort_session.ops.kernel import Kernel, kernel, kernels_of
from torch_ort_session.ops.native.chain import chain, composite

DOMAIN = "torch_ort_session"
"""Of its nodes."""


@kernel("Fused", domain=DOMAIN, since=(1,), native=("elementwise_chain",))
def fused(*xs: Tensor, program: list[int], constants: list[float]) -> Tensor:
    """A program of elementwise rows in one pass.

    Args:
        xs: Tensors of one float dtype, broadcast with one another.
        program: Rows of four numbers: see ``csrc/elementwise/chain/chain.h``.
        constants: Numbers that rows read.

    Returns:
        The last row's result.
    """
    y = chain(xs, program, constants)
    return composite(xs, program, constants) if y is None else y


FUSED: Kernel = kernels_of(fused)[0]
