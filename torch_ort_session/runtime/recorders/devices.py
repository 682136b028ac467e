"""Recorders by device, and the stamp of what a session records with, found out when it is loaded.

The native tape on the CPU, CUDA graphs; nothing else loads the module of the tape.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
from collections.abc import Callable
from typing import NamedTuple, cast

import torch

from torch_ort_session.ops import native
from torch_ort_session.runtime.recorders.api import Recorder
from torch_ort_session.runtime.recorders.cuda import CudaRecorder
from torch_ort_session.runtime.recorders.tape.native import NativeFeeds, NativeModule, NativeStrip
from torch_ort_session.runtime.recorders.tape.prepack import Prepacked
from torch_ort_session.runtime.recorders.tape.recorder import TapeRecorder


def unavailable(device: torch.device) -> str:
    """The reason why nothing can be recorded for a device; empty when it can be."""
    if device.type == "cuda":
        return ""
    if device.type != "cpu":
        return f"there is no recorder for {device.type} devices"
    return native.status().reason


class Stamp(NamedTuple):
    """The backend that captures are made with; one that was made with anything else is not replayed.

    Attributes:
        device: Where the session runs.
        library: Path of the compiled extension; empty without one.
        build: Size and time of change of the library, which tell one build from another.
        missing: Why there is no extension; empty when there is.
        reason: Why nothing can be recorded; empty when it can be.
    """

    device: str
    library: str = ""
    build: tuple[int, int] = (0, 0)
    missing: str = ""
    reason: str = ""

    @property
    def recorder(self) -> str:
        """``"tape"``, ``"CUDA graphs"`` or ``"none"``."""
        return "none" if self.reason else "CUDA graphs" if self.device.startswith("cuda") else "tape"


UNKNOWN = Stamp("", missing="nobody has looked yet", reason="nobody has looked yet")
"""Before a session is loaded."""


def stamp_of(device: torch.device) -> Stamp:
    """The stamp of a session; loads the extension if it fits: once, before any buffer is bound."""
    # Nobody who has no extension is warned of it at every load: the reports say so.
    usable = native.status().usable and native.load()
    library = native.library() if usable else None
    if library is None:
        missing = "the loaded extension is not to be found" if usable else native.status().reason
        return Stamp(str(device), missing=missing, reason=unavailable(device))
    info = library.stat()
    return Stamp(str(device), str(library), (info.st_size, info.st_mtime_ns), reason=unavailable(device))


def recorders(stamp: Stamp, make: Callable[[], Recorder | str]) -> Callable[[], Recorder | str]:
    """The maker of a capture's recorder, or of the reason why there is none: as it was found at load."""
    return (lambda: stamp.reason) if stamp.reason else make


def recorder_for(
    device: torch.device, *, poison: bool = False, packing: Prepacked | None = None
) -> Recorder | None:
    """A fresh recorder, to be shared by the recordings of one plan.

    Args:
        device: Where the recorded work takes place.
        poison: On the CPU, fill slots with 0xFF after their last reader, so that a late read shows.
        packing: On the CPU, packs the weights of convolutions.

    Returns:
        The recorder; None where :func:`unavailable` has a reason.
    """
    if unavailable(device):
        return None
    if device.type == "cuda":
        return CudaRecorder(device)
    module = _native_module()
    return None if module is None else TapeRecorder(module, poison=poison, packing=packing)


def recorder_or_reason(device: torch.device, poison: bool, packing: Prepacked) -> Recorder | str:
    """A recorder for one capture, or why there is none."""
    recorder = recorder_for(device, poison=poison, packing=packing)
    return recorder or unavailable(device) or "nothing can be recorded here"


def strips_for(device: torch.device) -> Callable[[int], NativeStrip] | None:
    """The maker of strips of calls whose sizes grow; None where there are none for a device.

    Args:
        device: Where the calls take place.
    """
    module = _native_module() if device.type == "cpu" else None
    return getattr(module, "Strip", None)


def feeds_for(device: torch.device, threads: int) -> NativeFeeds | None:
    """The taker of feeds of runs that are alike; None where a device has none.

    Args:
        device: Where the runs take place.
        threads: Of torch's CPU kernels.
    """
    module = _native_module() if device.type == "cpu" else None
    make = getattr(module, "Feeds", None)
    return None if make is None else cast(NativeFeeds, make(threads))


@functools.cache
def _native_module() -> NativeModule | None:
    """The Python side of the loaded extension."""
    library = native.library() if native.load() else None
    if library is None:
        return None
    # The library is loaded already: the loader gets that one again, and its namespace is registered once.
    name = f"torch_ort_session.{library.name.split('.')[0]}"
    loader = importlib.machinery.ExtensionFileLoader(name, str(library))
    spec = importlib.util.spec_from_file_location(name, library, loader=loader)
    if spec is None:
        return None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return cast(NativeModule, module)
