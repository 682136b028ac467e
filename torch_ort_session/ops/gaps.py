"""Operators that are out of reach, each with what stands in the way (not what is still to be done)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from torch_ort_session.ops import contrib


class Reason(Enum):
    """Why an operator has no kernel; the value is the text that users read."""

    BLOB = "its data is an opaque blob of another runtime"
    LAYOUT = "its packed format is not part of its documentation"
    DEVICE_MEMORY = "it works on addresses of one runtime's device buffers"
    ROUNDINGS = "its int8 roundings between steps are one GPU library's"
    ENGINE = "a step of one GPU engine, with nothing to check it by"


_BY_REASON = {
    Reason.BLOB: ("EPContext", "MatMulFpQ4", "Snpe"),
    Reason.LAYOUT: ("DequantizeBFP", "GatherPacked", "MatMulPacked", "MoEPacked", "QuantizeBFP"),
    Reason.DEVICE_MEMORY: ("ConvStateReplay", "GatedDeltaNetStateReplay", "SpeculativePrefixCommit"),
    Reason.ROUNDINGS: ("QOrderedAttention", "QOrderedLongformerAttention"),
    Reason.ENGINE: (
        "DynamicSparseAttention",
        "Mamba2Verify",
        "PackedSparseAttentionIndexer",
        "PackedSparseAttentionIndexerMerge",
        "RMSNormRotary",
        "SparseAttentionIndexer",
        "SparsePagedAttention",
    ),
}

GAPS: Mapping[tuple[str, str], Reason] = {
    (contrib.DOMAIN, op): reason for reason, ops in _BY_REASON.items() for op in ops
}
"""Operators by (domain, name)."""


def why(op: str, domain: str) -> str:
    """Why an operator has no kernel: its reason in the gap list, or just that there is none."""
    reason = GAPS.get((domain, op))
    return "no kernel" if reason is None else reason.value
