"""What a session can be told, as frozen records; the only reader of environment variables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Capture = Literal["auto", "off", "required"]


@dataclass(frozen=True, slots=True)
class Options:
    """How a session runs.

    Attributes:
        num_threads: Threads of torch's CPU kernels during a run, restored afterwards; None leaves the
            setting alone. Torch has one for the process, so sessions that run at once share it.
        capture: ``"auto"`` records what runs again and again and replays it, ``"off"`` always runs eagerly,
            ``"required"`` makes a run that should be captured and cannot be an error.
        max_plans: Signatures (shapes, dtypes and requested outputs) whose plans are kept; the least recently
            used goes first.
        verify: Checks for whoever doubts a result: plans are checked again, slots are filled with 0xFF after
            their last reader, and the first replay on other feeds than the captured ones is compared with an
            eager run. Where they differ the eager results are given, and the signature stays eager.
    """

    num_threads: int | None = None
    capture: Capture = "auto"
    max_plans: int = 8
    verify: bool = False

    def __post_init__(self) -> None:
        if self.capture not in get_args(Capture):
            known = ", ".join(map(repr, get_args(Capture)))
            raise ValueError(f"capture must be one of {known}, got {self.capture!r}")
        for name in ("max_plans", "num_threads"):
            value = getattr(self, name)
            if value is None and name == "num_threads":
                continue
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{name} must be an int, got {value!r}")
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
