"""Dropout.

Source: https://onnx.ai/onnx/operators/onnx__Dropout.html
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torch_ort_session.ir.graph import Node
from torch_ort_session.ops.kernel import KernelContext, kernel


def _may_train(node: Node) -> str | None:
    """Why a node that can be told to train cannot be captured."""
    has_mode = len(node.inputs) > 2 and node.inputs[2] != ""
    return "the dropped elements are drawn at random" if has_mode else None


def _legacy_trains(node: Node) -> str | None:
    return None if node.attributes.get("is_test", 0) else "the dropped elements are drawn at random"


@kernel(
    "Dropout", since=(12, 13, 22), host=("ratio", "training_mode"), view_of="x", seam=_may_train, varies=True
)
def dropout(
    x: Tensor,
    ratio: float | None = None,
    training_mode: bool | None = None,
    *,
    seed: int | None = None,
    ctx: KernelContext,
) -> tuple[Tensor, Tensor | None]:
    """``x`` itself, or in training mode ``x`` with random elements made 0 and the others scaled up.

    Args:
        x: Floats.
        ratio: Probability of an element to be dropped; 0.5 when absent.
        training_mode: Whether to drop; no when absent.
        seed: Makes the choice the same in every run; on the CPU it is that of ONNX's reference.
        ctx: Context.

    Returns:
        The result, and a bool mask of the elements that were kept.

    Raises:
        ValueError: ``ratio`` is not in [0, 1].
    """
    if not training_mode:
        return x, torch.ones_like(x, dtype=torch.bool) if ctx.wants(1) else None
    return dropped(x, 0.5 if ratio is None else ratio, seed)


@kernel("Dropout", since=(10,), view_of="x")
def dropout_with_bool_mask(
    x: Tensor, *, ratio: float = 0.5, ctx: KernelContext
) -> tuple[Tensor, Tensor | None]:
    """``x`` itself and a bool mask that keeps everything: this revision knows inference alone."""
    return x, torch.ones_like(x, dtype=torch.bool) if ctx.wants(1) else None


@kernel("Dropout", since=(7,), view_of="x")
def dropout_with_number_mask(
    x: Tensor, *, ratio: float = 0.5, ctx: KernelContext
) -> tuple[Tensor, Tensor | None]:
    """``x`` itself and a mask of ones in its dtype: this revision knows inference alone."""
    return x, torch.ones_like(x) if ctx.wants(1) else None


@kernel("Dropout", since=(1, 6), view_of="x", seam=_legacy_trains, varies=True)
def dropout_legacy(
    x: Tensor,
    *,
    ratio: float = 0.5,
    is_test: int = 0,
    consumed_inputs: list[int] | None = None,
    ctx: KernelContext,
) -> tuple[Tensor, Tensor | None]:
    """As :func:`dropout`, training unless ``is_test``; the mask has the dtype of ``x``.

    Raises:
        ValueError: ``ratio`` is not in [0, 1].
    """
    if is_test:
        return x, torch.ones_like(x) if ctx.wants(1) else None
    result, mask = dropped(x, ratio, None)
    return result, mask.to(x.dtype)


def dropped(x: Tensor, ratio: float, seed: int | None) -> tuple[Tensor, Tensor]:
    """A tensor with random elements made 0 and the others scaled up, and a bool mask of those.

    Raises:
        ValueError: ``ratio`` is not in [0, 1].
    """
    if not 0.0 <= ratio <= 1.0:
        raise ValueError(f"The ratio of dropped elements is a probability, not {ratio}.")
    drawn = torch.rand(x.shape, device=x.device) if seed is None else _seeded_uniform(x.shape, seed, x.device)
    kept = drawn >= ratio
    scale = 1.0 / (1.0 - ratio) if ratio < 1.0 else 0.0
    return torch.where(kept, x * scale, torch.zeros_like(x)), kept


def _seeded_uniform(shape: Sequence[int], seed: int, device: torch.device) -> Tensor:
    """Numbers in [0, 1), the same for the same seed.

    On the CPU they are those of ``numpy.random.RandomState(seed)``, which ONNX's reference draws with:
    torch's generator there is the same Mersenne Twister, started from the seed's low 32 bits in the same way.

    Args:
        shape: Dims of the result.
        seed: The seed.
        device: Where they are drawn; other devices than the CPU draw others.

    Returns:
        float64 of ``shape``, multiples of 2**-53.

    Source: https://numpy.org/doc/stable/reference/random/legacy.html
    """
    generator = torch.Generator(device)
    generator.manual_seed(seed)
    bits = torch.empty(tuple(shape), dtype=torch.int64, device=device)
    bits.random_(-(2**63), None, generator=generator)
    # The upper 27 bits of one draw of the generator are followed by the upper 26 of the next.
    upper, lower = bits >> 37 & (1 << 27) - 1, bits >> 6 & (1 << 26) - 1
    return (upper << 26 | lower).to(torch.float64).mul_(2.0**-53)
