"""The stamp of what a session runs with, found out when it is loaded and not again."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from torch_ort_session.ops import native
from torch_ort_session.runtime.recorders.api import Recorder
from torch_ort_session.runtime.recorders.devices import unavailable


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
