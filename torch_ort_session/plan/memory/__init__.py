"""Places in an arena for values that do not live at the same time."""

from torch_ort_session.plan.memory.layout import Evidence, MemoryLayout, Place, PlaceKind, Touch, named
from torch_ort_session.plan.memory.slots import Interval, Packing, live_bytes, pack
from torch_ort_session.plan.memory.spill import spilled

__all__ = [
    "Evidence",
    "Interval",
    "MemoryLayout",
    "Packing",
    "Place",
    "PlaceKind",
    "Touch",
    "live_bytes",
    "named",
    "pack",
    "spilled",
]
