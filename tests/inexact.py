"""Where a replay may differ from an eager run in the last bits: every test that may, in one place.

A replay makes the calls of the eager run in other memory, so results are the same to the bit but where a
kernel of torch sums in another order there. Tests that are not listed agree exactly, and `test_inexact.py`
pins how many are listed, so that the number cannot grow unseen.
"""

from __future__ import annotations

INEXACT_CASES: dict[str, str] = {}
"""Op cases, by the beginning of their id in `test_capture_ops.py`, and why."""

INEXACT_SUITE: dict[str, str] = {}
"""Tests of ONNX's suite, and why."""

INEXACT_ZOO: dict[str, float] = {}
"""Models of the zoo, and how far off they may be as a share of the largest magnitude."""


def inexact_case(name: str) -> bool:
    """Whether an op case of this id may differ in the last bits."""
    return any(name.startswith(listed) for listed in INEXACT_CASES)
