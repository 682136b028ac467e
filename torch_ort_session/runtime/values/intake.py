"""Intake: the feeds of a run, with what was accepted before accepted without another look at the model."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

import numpy as np
import torch

from torch_ort_session.errors import InputError
from torch_ort_session.ir.graph import ValueInfo
from torch_ort_session.ir.types import TensorType
from torch_ort_session.ops.kernel import Value
from torch_ort_session.runtime.values.devices import FEW, emptied
from torch_ort_session.runtime.values.feeds import convert_all, from_numpy

_ACCEPTED = 256
"""Combinations of dims that are remembered; then the memory starts afresh."""

_HOST = torch.device("cpu")
_Tensor = torch.Tensor
_Array = np.ndarray
_STRIDED = torch.strided


class Intake:
    """Converts and checks feeds as :func:`.feeds.convert_all` does, at less cost for dims seen before.

    Args:
        infos: The model's inputs.
        defaults: Names of those that have a default.
        device: Where the session runs.
        on_host: Names of inputs that stay on the CPU.
    """

    def __init__(
        self,
        infos: Iterable[ValueInfo],
        defaults: Container[str],
        device: torch.device,
        on_host: Container[str] = (),
    ) -> None:
        self._infos = tuple(infos)
        self._defaults = defaults
        self._device = device
        self._on_host = on_host
        self._accepted: set[tuple[torch.Size, ...]] = set()
        self._quick = tuple(
            (info.name, dtype, _HOST if info.name in on_host else device, dtype.is_floating_point)
            for info, dtype in ((info, _dtype(info)) for info in self._infos)
            if dtype is not None
        )

    def __call__(self, feed: Mapping[str, object]) -> dict[str, Value]:
        """Every feed of a run as the frame holds it.

        Args:
            feed: What came, by name.

        Returns:
            One value for each name that was fed, in the model's order.

        Raises:
            InputError: It is no mapping, a name is unknown or missing, or a value does not fit.
        """
        if type(feed) is not dict and not isinstance(feed, Mapping):
            kind = type(feed).__name__
            raise InputError(f"feed is a mapping from input names to values, not a {kind}", got=kind)
        try:
            fed = self._known(feed)
        except RuntimeError:
            # A function transform has wrapped a tensor, which has no pointer then.
            fed = None
        if fed is None:
            fed = convert_all(self._infos, self._defaults, feed, self._device, self._on_host)
            if len(fed) == len(self._quick) == len(self._infos):
                if len(self._accepted) >= _ACCEPTED:
                    self._accepted.clear()
                self._accepted.add(
                    tuple([value.shape for value in fed.values() if isinstance(value, _Tensor)])
                )
        return fed

    def _known(self, feed: Mapping[str, object]) -> dict[str, Value] | None:
        """The feeds, if nothing about them is new; None leaves the rest, errors included, to the long way."""
        quick = self._quick
        if len(feed) != len(quick):
            return None
        fed: dict[str, Value] = {}
        shapes: list[torch.Size] = []
        for name, dtype, place, floats in quick:
            value = feed.get(name)
            if type(value) is _Array:
                try:
                    value = from_numpy(name, value)
                except InputError:
                    return None
            if (
                type(value) is not _Tensor
                or value.dtype is not dtype
                or value.device != place
                or value.layout is not _STRIDED
                or value.is_nested
                or (floats and value.is_neg())
                or (value.data_ptr() < FEW and emptied(value))
            ):
                return None
            fed[name] = value
            shapes.append(value.shape)
        return fed if tuple(shapes) in self._accepted else None


def _dtype(info: ValueInfo) -> torch.dtype | None:
    """The dtype of an input that is a plain tensor without lazy bits in its dtype; else None."""
    if type(info.type) is not TensorType:
        return None
    dtype = info.type.element.torch_dtype
    return None if dtype is None or dtype.is_complex else dtype
