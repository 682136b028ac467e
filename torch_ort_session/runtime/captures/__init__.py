"""One signature's captured graph: segments, seams, guards."""

from torch_ort_session.runtime.captures.capture import (
    CapturedGraph,
    CapturedRegion,
    Declined,
    OutputDonation,
    capture,
    clones,
)
from torch_ort_session.runtime.captures.compare import difference
from torch_ort_session.runtime.captures.replay import (
    Seams,
    release,
    replay,
    replay_regions,
    replay_whole,
    viewed,
    watch_capture,
)
from torch_ort_session.runtime.captures.warmup import (
    Keys,
    PlannedProgram,
    Source,
    Warmup,
    frame_of,
    fused_in,
    planned_program,
    replanned,
    specialised,
    warm_up,
)

__all__ = [
    "CapturedGraph",
    "CapturedRegion",
    "Declined",
    "Keys",
    "OutputDonation",
    "PlannedProgram",
    "Seams",
    "Source",
    "Warmup",
    "capture",
    "clones",
    "difference",
    "frame_of",
    "fused_in",
    "planned_program",
    "release",
    "replanned",
    "replay",
    "replay_regions",
    "replay_whole",
    "specialised",
    "viewed",
    "warm_up",
    "watch_capture",
]
