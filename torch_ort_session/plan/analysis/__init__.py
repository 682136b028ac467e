"""What follows from a run that was observed: specs, static values, growth."""

from torch_ort_session.plan.analysis.growth import FARTHEST, Even, GrowthAnalysis, find_growth, growing_values
from torch_ort_session.plan.analysis.specs import Observation, Spec, eager_peak, fits, spec_of
from torch_ort_session.plan.analysis.static_values import (
    StaticValues,
    find_static_values,
    key_feed_candidates,
)

__all__ = [
    "FARTHEST",
    "Even",
    "GrowthAnalysis",
    "Observation",
    "Spec",
    "StaticValues",
    "eager_peak",
    "find_growth",
    "find_static_values",
    "fits",
    "growing_values",
    "key_feed_candidates",
    "spec_of",
]
