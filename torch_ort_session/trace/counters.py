"""Counters of a session by name: the one place where a counter is called what it is called."""

from __future__ import annotations

from typing import Final

EAGER: Final = "eager runs"
OBSERVED: Final = "observed runs"
CAPTURES: Final = "captures"
REPLAYS: Final = "replays"
DECLINES: Final = "declines"
BROKEN: Final = "failed captures"
RETIREMENTS: Final = "retirements"
LATCHES: Final = "latched signatures"
EVICTIONS: Final = "evictions"
FORGOTTEN: Final = "forgotten signatures"
QUARANTINED: Final = "quarantined operators"
UNLISTED: Final = "unlisted signatures"
PADDED_RUNS: Final = "padded runs"
PADDED: Final = "bytes padded"
REFUSED: Final = "refused buckets"
LOOSENED: Final = "loosened nodes"
DEMOTED: Final = "demoted key feeds"
PROBES: Final = "probes"
MISMATCHES: Final = "probe mismatches"
COPIED: Final = "bytes copied"
PRIMED: Final = "growing runs primed"
REBUILT: Final = "growing runs rebuilt"
GROWN: Final = "growing runs replayed"
INELIGIBLE: Final = "growing runs ineligible"
VIEWS: Final = "views reused"
SKIPPED: Final = "steps skipped"
MOVED: Final = "view mismatches"
UNVIEWED: Final = "views latched"
DELIVERED: Final = "bytes delivered"
BODY_OBSERVED: Final = "body calls observed"
BODY_CAPTURES: Final = "body captures"
BODY_REPLAYS: Final = "body replays"
BODY_DECLINES: Final = "body declines"
BODY_RETIREMENTS: Final = "body retirements"
BODY_LATCHES: Final = "latched body signatures"

MEANING: Final[dict[str, str]] = {
    EAGER: "runs that were neither observed nor captured nor replayed",
    OBSERVED: "eager runs whose specs were noted",
    CAPTURES: "runs that were recorded and are replayed from then on",
    REPLAYS: "runs that replayed a capture",
    DECLINES: "captures that were given up; the run was made eagerly",
    BROKEN: "declined captures that may succeed another time, so that the signature warms up again",
    RETIREMENTS: "captures that were dropped because they were no longer valid",
    LATCHES: "signatures that stay eager",
    EVICTIONS: "captures that were dropped because others were used more recently",
    FORGOTTEN: "signatures without a capture that were dropped because others were used more recently",
    UNLISTED: "signatures that stay eager because capture_only does not name them",
    PADDED_RUNS: "runs on feeds that were padded to a bucket's size",
    PADDED: "bytes by which padding made feeds larger",
    REFUSED: "sizes of buckets that are not used because padding changes results",
    QUARANTINED: "operators that run eagerly because recording one failed",
    LOOSENED: "nodes that run eagerly because the shape of their results does not settle",
    DEMOTED: "feeds that had too many values to tell captures apart by them",
    PROBES: "replays that were compared with an eager run on the same feeds",
    MISMATCHES: "probes that differed, so that the signature stays eager",
    COPIED: "bytes of feeds that replays copied into static inputs",
    DELIVERED: "bytes of results that were copied into bound tensors",
    PRIMED: "runs whose feeds grew that were observed, to see what stays the same",
    REBUILT: "runs whose feeds grew otherwise than assumed; they ran eagerly, and the memo was made anew",
    GROWN: "runs whose feeds grew that left out what the memo knows",
    INELIGIBLE: "runs whose feeds grew of which nothing is known beforehand",
    VIEWS: "views of what stays where it is that were not made again",
    SKIPPED: "steps that were left out because it was known what they make",
    MOVED: "times that a kept view's source had moved or changed, so that every view was made again",
    UNVIEWED: "view plans that were given up because their sources do not stay",
    BODY_OBSERVED: "calls of bodies of If, Loop and Scan that ran step by step and whose specs were noted",
    BODY_CAPTURES: "calls of bodies that were recorded and are replayed from then on",
    BODY_REPLAYS: "calls of bodies that replayed a capture",
    BODY_DECLINES: "captures of bodies that were given up, or are not worth it",
    BODY_RETIREMENTS: "captures of bodies that were dropped because they were no longer valid",
    BODY_LATCHES: "signatures of bodies that run step by step for good",
}
"""Every counter, in the order in which they are shown, and what it counts."""

OF_BODIES: Final[dict[str, str]] = {
    OBSERVED: BODY_OBSERVED,
    CAPTURES: BODY_CAPTURES,
    REPLAYS: BODY_REPLAYS,
    DECLINES: BODY_DECLINES,
    RETIREMENTS: BODY_RETIREMENTS,
    LATCHES: BODY_LATCHES,
}
"""Counters of bodies, by those of runs."""


def zeros() -> dict[str, int]:
    """Counters before the first run."""
    return dict.fromkeys(MEANING, 0)
