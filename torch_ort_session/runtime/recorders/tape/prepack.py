"""Convolutions of a tape: written where their results stay, with weights in oneDNN's own order.

``aten::convolution`` has no form that writes into a given tensor, and brings its weight into that order anew
for every call. What torch computes by oneDNN becomes two calls, ``zero_`` and oneDNN's sum in place on the
packed weight; what it computes as a product with unfolded windows becomes the call behind it. Both give the
same bits as the convolution: measured on the 224 shapes that oneDNN computes of the zoo's models, and tried
once for each packed weight. Where torch chooses oneDNN follows from shapes, dtype and the number of threads.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils.weak import TensorWeakRef

from torch_ort_session.runtime.recorders.tape.aten import OpCall

ONEDNN = "mkldnn::_convolution_pointwise"
"""A convolution by oneDNN that was called by its name."""

_INTO = "mkldnn::_convolution_pointwise_"
TRANSPOSED = "mkldnn::_convolution_transpose_pointwise"
"""A transposed one; it has no form that writes into a given tensor."""

_UNFOLDED = "aten::_slow_conv2d_forward"
_TRANSPOSED_WEIGHT = "_reorder_convolution_transpose_weight"
_ONEDNN_ARGUMENTS = 13
_LINES, _IMAGES = 3, 4


class _Geometry(NamedTuple):
    """Everything that the order of a packed weight hangs on, beside the weight."""

    pads: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int
    sizes: tuple[int, ...]
    threads: int


class _Entry(NamedTuple):
    """A packed weight, which tapes keep alive, and the weight: its storage stands for nothing else then."""

    packed: TensorWeakRef
    weight: torch.Tensor


class Prepacked:
    """Packed weights, which captures share while one of those lives. Lives as long as its session."""

    def __init__(self) -> None:
        self._entries: dict[tuple[Any, ...], _Entry] = {}
        self._constants: frozenset[int] = frozenset()

    @contextlib.contextmanager
    def admitting(self, values: Iterable[object]) -> Iterator[None]:
        """Have convolutions packed whose weight lies in the memory of one of these values.

        Args:
            values: Constants: nobody writes to them as long as what is recorded now is replayed.
        """
        before = self._constants
        tensors = (value for value in values if isinstance(value, torch.Tensor))
        self._constants = frozenset(_storage(t) for t in tensors if t.layout is torch.strided)
        try:
            yield
        finally:
            self._constants = before

    @property
    def nbytes(self) -> int:
        """Bytes of the packed weights that captures refer to."""
        return sum(entry.weight.nbytes for entry in self._living())

    def into(self, full: Sequence[Any], result: torch.Tensor) -> list[OpCall]:
        """The calls that write what a convolution gave into its result.

        Args:
            full: All arguments of ``aten::convolution``.
            result: What it gave: a tensor of its own.

        Returns:
            The calls in order; none where there are no such calls.
        """
        x, w, b, strides, pads, dilations, transposed, _, groups = full
        if transposed or w.requires_grad:
            return []
        if x.dim() == _LINES:
            # Torch itself computes these so, out of sight.
            lines = [x.unsqueeze(2), w.unsqueeze(2), b, [1, *strides], [0, *pads], [1, *dilations]]
            return self.into([*lines, False, [0, 0], groups], result.unsqueeze(2))
        if x.dim() != _IMAGES:
            return []
        backend = _backend(full)
        if backend == "Slow2d" and groups == 1:
            return [(_UNFOLDED, "output", [x, w, list(w.shape[2:]), b, strides, pads, result])]
        if backend != "Mkldnn":
            return []
        return self.summed([x, w, b, pads, strides, dilations, groups], result)

    def summed(self, full: Sequence[Any], result: torch.Tensor) -> list[OpCall]:
        """The calls that write what oneDNN's convolution gave into its result.

        Args:
            full: Arguments of ``mkldnn::_convolution_pointwise``, without the last three or with them.
            result: What it gave: a tensor of its own.

        Returns:
            The calls in order; none where there are no such calls.
        """
        x, w, b, pads, strides, dilations, groups = full[:7]
        if w.layout is not torch.strided or (len(full) > 7 and full[7] != "none"):
            # A weight that is packed already, or something that is done with the sum.
            return []
        turned = result.is_contiguous(memory_format=torch.channels_last)
        if not turned or not self._admits(w) or not _has_sum():
            return []
        geometry = _geometry(x, pads, strides, dilations, groups)
        packed = self._packed(w, geometry)
        if packed is None:
            packed = _pack(w, geometry)
            arguments = _sum(torch.zeros_like(result), x, packed, b, geometry)
            if not _same(arguments, result):
                return []
            self._keep(w, geometry, packed)
        return [("aten::zero_", "", [result]), (_INTO, "binary", _sum(result, x, packed, b, geometry))]

    def transposed(self, full: Sequence[Any], result: torch.Tensor) -> list[Any]:
        """The arguments of a transposed convolution by oneDNN, with its weight packed where that can be.

        Args:
            full: All arguments of ``mkldnn::_convolution_transpose_pointwise``.
            result: What it gave.
        """
        x, w, _, pads, extra, strides, dilations, groups = full[:8]
        if not self._admits(w) or not hasattr(torch.ops.mkldnn, _TRANSPOSED_WEIGHT):
            return list(full)
        geometry = _geometry(x, (*pads, *extra), strides, dilations, groups)
        packed = self._packed(w, geometry)
        if packed is None:
            pack = getattr(torch.ops.mkldnn, _TRANSPOSED_WEIGHT)
            packed = pack(w, pads, extra, strides, dilations, groups, list(x.shape))
            again = torch.ops.mkldnn._convolution_transpose_pointwise(x, packed, *full[2:])
            if not torch.equal(again, result) or again.stride() != result.stride():
                return list(full)
            self._keep(w, geometry, packed)
        return [x, packed, *full[2:]]

    def _admits(self, w: torch.Tensor) -> bool:
        return w.layout is torch.strided and _storage(w) in self._constants

    def _packed(self, w: torch.Tensor, geometry: _Geometry) -> torch.Tensor | None:
        entry = self._entries.get((*_place(w), geometry))
        packed: torch.Tensor | None = None if entry is None else entry.packed()
        return packed

    def _keep(self, w: torch.Tensor, geometry: _Geometry, packed: torch.Tensor) -> None:
        self._living()
        self._entries[(*_place(w), geometry)] = _Entry(TensorWeakRef(packed), w)

    def _living(self) -> list[_Entry]:
        """The entries that a capture refers to; the others are forgotten."""
        self._entries = {key: entry for key, entry in self._entries.items() if entry.packed() is not None}
        return list(self._entries.values())


def _geometry(
    x: torch.Tensor, pads: Sequence[int], strides: Sequence[int], dilations: Sequence[int], groups: int
) -> _Geometry:
    threads = torch.get_num_threads()
    return _Geometry(tuple(pads), tuple(strides), tuple(dilations), groups, tuple(x.shape), threads)


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _place(w: torch.Tensor) -> tuple[Any, ...]:
    return (_storage(w), w.storage_offset(), w.shape, w.stride(), w.dtype)


def _sum(
    result: torch.Tensor, x: torch.Tensor, packed: torch.Tensor, b: torch.Tensor | None, geometry: _Geometry
) -> list[Any]:
    """Arguments of oneDNN's convolution that adds to ``result``."""
    pads, strides, dilations, groups, *_ = geometry
    lists = [list(pads), list(strides), list(dilations)]
    return [result, x, packed, b, *lists, groups, "add", 1.0, None, [], None]


def _pack(w: torch.Tensor, geometry: _Geometry) -> torch.Tensor:
    turned = w.contiguous(memory_format=torch.channels_last)
    pads, strides, dilations, groups, sizes, _ = geometry
    packed: torch.Tensor = torch.ops.mkldnn._reorder_convolution_weight(
        turned, pads, strides, dilations, groups, sizes
    )
    return packed


def _same(arguments: list[Any], result: torch.Tensor) -> bool:
    """Whether oneDNN's sum gives what the convolution gave, here and now."""
    try:
        summed = torch.ops.mkldnn._convolution_pointwise_.binary(*arguments)
    except RuntimeError:
        return False
    return summed.data_ptr() == arguments[0].data_ptr() and torch.equal(summed, result)


def _backend(full: Sequence[Any]) -> str:
    """The backend that torch computes a convolution by; empty where it does not tell."""
    select = getattr(torch._C, "_select_conv_backend", None)
    return "" if select is None else str(select(*full)).rpartition(".")[2]


@functools.cache
def _has_sum() -> bool:
    """Whether this torch has oneDNN's sum in place, as it is called here."""
    try:
        schema = torch.ops.mkldnn._convolution_pointwise_.binary._schema
        return len(schema.arguments) == _ONEDNN_ARGUMENTS and hasattr(
            torch.ops.mkldnn, "_reorder_convolution_weight"
        )
    except (AttributeError, RuntimeError):
        return False
