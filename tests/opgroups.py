"""The cases of `tests/cases` by operator, and their feeds as a run takes them."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from opcase import OpCase
from test_ops import all_cases

from torch_ort_session.runtime.values.feeds import from_numpy


def cases_by_op() -> dict[str, list[OpCase]]:
    """By domain and name, as in ``ai.onnx::Add``."""
    found: dict[str, list[OpCase]] = defaultdict(list)
    for _, case in all_cases():
        found[f"{case.domain or 'ai.onnx'}::{case.op}"].append(case)
    return found


CASES = cases_by_op()


def fed(name: str, value: Any) -> Any:
    """A feed as a run takes it: strings stay as they are."""
    if isinstance(value, list):
        return [fed(name, each) for each in value]
    return value if value.dtype == object else from_numpy(name, value)
