"""What users hand in becomes frame values; what they get is theirs."""

from torch_ort_session.runtime.values.context import RunModes, resolve_device, stepwise, transformed, watched
from torch_ort_session.runtime.values.feeds import (
    FeedConverter,
    any_requires_grad,
    convert,
    convert_all,
    recordable,
)
from torch_ort_session.runtime.values.guards import (
    FeedGuard,
    FeedRow,
    ShapePattern,
    feed_guard,
    feed_row,
    guard_of,
)
from torch_ort_session.runtime.values.overlap import overlap, overlaps_itself
from torch_ort_session.runtime.values.results import (
    Delivery,
    Outputs,
    Owned,
    apart,
    cloned,
    own,
    storage_ids,
    storages,
    wanted_names,
)
from torch_ort_session.runtime.values.shapes import (
    Allowed,
    Padding,
    Stretch,
    allowed,
    cut,
    pad,
    padding,
    padding_text,
)
from torch_ort_session.runtime.values.signature import BoundForm, Signature, not_replayed, signature_of

__all__ = [
    "Allowed",
    "BoundForm",
    "Delivery",
    "FeedConverter",
    "FeedGuard",
    "FeedRow",
    "Outputs",
    "Owned",
    "Padding",
    "RunModes",
    "ShapePattern",
    "Signature",
    "Stretch",
    "allowed",
    "any_requires_grad",
    "apart",
    "cloned",
    "convert",
    "convert_all",
    "cut",
    "feed_guard",
    "feed_row",
    "guard_of",
    "not_replayed",
    "overlap",
    "overlaps_itself",
    "own",
    "pad",
    "padding",
    "padding_text",
    "recordable",
    "resolve_device",
    "signature_of",
    "stepwise",
    "storage_ids",
    "storages",
    "transformed",
    "wanted_names",
    "watched",
]
