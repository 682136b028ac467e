"""Regions: what is recorded, what runs eagerly between, and why."""

from torch_ort_session.plan.partition.fuse import Fusion, fuse, fused_nodes, is_fused, last_name
from torch_ort_session.plan.partition.regroup import regroup
from torch_ort_session.plan.partition.report import Decline, DeclineReport, Reason
from torch_ort_session.plan.partition.segments import (
    Region,
    count_launches,
    guarded,
    is_assumed,
    is_folded,
    kept_constants,
    split,
)

__all__ = [
    "Decline",
    "DeclineReport",
    "Fusion",
    "Reason",
    "Region",
    "count_launches",
    "fuse",
    "fused_nodes",
    "guarded",
    "is_assumed",
    "is_folded",
    "is_fused",
    "kept_constants",
    "last_name",
    "regroup",
    "split",
]
