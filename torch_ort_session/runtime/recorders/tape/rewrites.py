"""Rewrites: calls that write a result in place of an op that makes it anew, and give the same bits.

Each is what torch's own kernel does once its result is allocated, or an op that runs the same kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

Call: TypeAlias = tuple[str, str, list[Any]]
"""An op's qualified name, its overload, and arguments for its whole schema."""

_Rewrite: TypeAlias = Callable[[list[Any], torch.Tensor], list[Call]]


def rewritten(name: tuple[str, str], full: list[Any], results: Sequence[torch.Tensor]) -> list[Call]:
    """The calls that write the result of an op into the tensor that it gave.

    Args:
        name: Qualified name of the op, and its overload.
        full: Its arguments.
        results: What it gave, in memory of its own.

    Returns:
        The calls in order; none where there is no such way.
    """
    rewrite = _REWRITES.get(name)
    if rewrite is None or len(results) != 1 or any(_lazy(a) for a in (*full, *results)):
        return []
    return rewrite(full, results[0])


def _lazy(value: object) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_conj() or value.is_neg())


def _as(name: str, overload: str) -> _Rewrite:
    return lambda full, result: [(f"aten::{name}", overload, [*full, result])]


def _filled(value: Callable[[list[Any]], Any]) -> _Rewrite:
    return lambda full, result: [("aten::fill_", "Scalar", [result, value(full)])]


def _subtracted(full: list[Any], result: torch.Tensor) -> list[Call]:
    return [("aten::sub", "out", [full[1], full[0], full[2], result])]


def _unequal_to_itself(full: list[Any], result: torch.Tensor) -> list[Call]:
    return [("aten::ne", "Tensor_out", [full[0], full[0], result])]


def _counted(start: int, stop: int, step: int) -> _Rewrite:
    def rewrite(full: list[Any], result: torch.Tensor) -> list[Call]:
        first = 0 if start < 0 else full[start]
        stride = 1 if step < 0 else full[step]
        return [("aten::arange", "start_out", [first, full[stop], stride, result])]

    return rewrite


def _padded(full: list[Any], result: torch.Tensor) -> list[Call]:
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


def _repeated(full: list[Any], result: torch.Tensor) -> list[Call]:
    source, repeats = full
    if not result.numel():
        return []
    source = source.expand((1,) * (len(repeats) - source.dim()) + tuple(source.shape))
    tiles = result
    for dim, size in enumerate(source.shape):
        tiles = tiles.unfold(dim, size, size)
    return [("aten::copy_", "", [tiles, source.expand_as(tiles), False])]


def _put(full: list[Any], result: torch.Tensor) -> list[Call]:
    source, *rest = full
    return [("aten::copy_", "", [result, source, False]), ("aten::index_put_", "", [result, *rest])]


_REWRITES: dict[tuple[str, str], _Rewrite] = {
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
