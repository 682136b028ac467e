"""Results without data of ops of ``csrc``: for torch.compile and torch.export."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def describe(known: Callable[[str], bool]) -> None:
    """Tell torch, once the extension is loaded, of those of its ops that are known there."""
    for shape in (
        _check_index,
        _check_range,
        _non_max_suppression,
        _forest_votes,
        _top_k,
        _elementwise_chain,
    ):
        name = shape.__name__.lstrip("_")
        if known(name):
            torch.library.register_fake(f"torch_ort_session::{name}", shape)
    if known("elementwise_chain"):
        torch.library.register_fake("torch_ort_session::elementwise_chain.out", _elementwise_chain_out)


def _check_index(index: Tensor, size: int, node: int, word: Tensor | None) -> Tensor:
    return torch.empty(index.shape, dtype=torch.int64, device=index.device)


def _check_range(values: Tensor, low: int, high: int, flag: int, node: int, word: Tensor | None) -> Tensor:
    return torch.empty(values.shape, dtype=torch.int64, device=values.device)


def _non_max_suppression(
    boxes: Tensor, scores: Tensor, limit: int, overlap: float, score: float | None, centred: bool
) -> Tensor:
    # How many boxes are chosen depends on the data.
    return boxes.new_empty((torch.library.get_ctx().new_dynamic_size(), 3), dtype=torch.int64)


def _forest_votes(
    x: Tensor,
    roots: Tensor,
    thresholds: Tensor,
    nodes: Tensor,
    depth: int,
    vote_targets: Tensor,
    vote_weights: Tensor,
    columns: int,
    how: int,
) -> tuple[Tensor, Tensor]:
    shape = (x.shape[0], columns)
    return x.new_empty(shape, dtype=torch.float64), x.new_empty(shape, dtype=torch.bool)


def _top_k(x: Tensor, k: int, axis: int, largest: bool) -> Tensor:
    shape = [*x.shape[:axis], k, *x.shape[axis + 1 :]]
    return x.new_empty(shape, dtype=torch.int64)


def _elementwise_chain(
    inputs: Sequence[Tensor], program: Sequence[int], constants: Sequence[float], instructions: int = -1
) -> Tensor:
    shape = torch.broadcast_shapes(*(each.shape for each in inputs))  # type: ignore[no-untyped-call]
    return inputs[0].new_empty(shape)


def _elementwise_chain_out(
    inputs: Sequence[Tensor],
    program: Sequence[int],
    constants: Sequence[float],
    instructions: int = -1,
    *,
    out: Tensor,
) -> Tensor:
    return out
