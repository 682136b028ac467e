"""What a session can be told, as frozen records; the only reader of environment variables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

Capture = Literal["auto", "off", "required"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper bounds that a model must keep while it is loaded; the defaults are far above real models.

    Others are passed as ``load(path, options=Options(limits=Limits(nodes=...)))``.

    Attributes:
        nesting: Control-flow bodies within each other, and model-local functions that call each other.
        nodes: Nodes of all graphs together, after model-local functions are expanded.
        elements: Elements of one tensor.
        dense_bytes: Bytes of one sparse initializer once it is dense: the only weight that can be larger
            than the file that holds it.
        file_bytes: Size of the model file.
        message_bytes: Size of the protobuf message without the weights that are read straight from the file.
        hard_links: Whether an external data file may have other names (hard links). A folder unpacked from an
            archive can hold a link to any file of the same disk, so it is off; package managers that link
            files from a cache need it on.
    """

    nesting: int = 64
    nodes: int = 500_000
    elements: int = 1 << 40
    dense_bytes: int = 1 << 33
    file_bytes: int = 1 << 42
    message_bytes: int = (1 << 31) - 1
    hard_links: bool = False


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
        limits: What a model may ask for before loading it is refused.
    """

    num_threads: int | None = None
    capture: Capture = "auto"
    max_plans: int = 8
    verify: bool = False
    limits: Limits = field(default_factory=Limits)

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
