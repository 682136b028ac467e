"""What a session can be told, as frozen records; the only reader of environment variables."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """How a session runs.

    Attributes:
        num_threads: Threads of torch's CPU kernels during a run, restored afterwards; None leaves the
            setting alone. Torch has one for the process, so sessions that run at once share it.
    """

    num_threads: int | None = None

    def __post_init__(self) -> None:
        if self.num_threads is not None and self.num_threads < 1:
            raise ValueError(f"num_threads must be at least 1, got {self.num_threads}")
