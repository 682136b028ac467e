"""Runs whose shapes or bodies vary without a capture each."""

from torch_ort_session.runtime.dynamic.control_flow import Bodies, bodies_of, enter
from torch_ort_session.runtime.dynamic.growing import (
    GrowthCache,
    following,
    growth_cache_of,
    ongoing,
    run_growing,
)

__all__ = [
    "Bodies",
    "GrowthCache",
    "bodies_of",
    "enter",
    "following",
    "growth_cache_of",
    "ongoing",
    "run_growing",
]
