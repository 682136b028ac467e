"""Records a callable's device work and replays it."""

from torch_ort_session.runtime.recorders.api import (
    CaptureMemory,
    Diverged,
    Finished,
    Recorder,
    Recording,
    RecordingStats,
    Refused,
    Shared,
    Use,
)
from torch_ort_session.runtime.recorders.arena import Arena
from torch_ort_session.runtime.recorders.devices import (
    UNKNOWN,
    Stamp,
    feeds_for,
    recorder_for,
    recorder_or_reason,
    recorders,
    stamp_of,
    strips_for,
)
from torch_ort_session.runtime.recorders.tape.aten import traits_of
from torch_ort_session.runtime.recorders.tape.native import NativeFeeds, NativeStrip

__all__ = [
    "UNKNOWN",
    "Arena",
    "CaptureMemory",
    "Diverged",
    "Finished",
    "NativeFeeds",
    "NativeStrip",
    "Recorder",
    "Recording",
    "RecordingStats",
    "Refused",
    "Shared",
    "Stamp",
    "Use",
    "feeds_for",
    "recorder_for",
    "recorder_or_reason",
    "recorders",
    "stamp_of",
    "strips_for",
    "traits_of",
]
