"""The cases of `tests/cases`: all of them, by operator, as parameters; their feeds as a run takes them."""

from __future__ import annotations

import importlib
import pkgutil
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import cases
import pytest
from opcase import OpCase

from torch_ort_session.runtime.values.feeds import from_numpy


def all_cases() -> Iterator[tuple[str, OpCase]]:
    for info in pkgutil.iter_modules(cases.__path__):
        for case in importlib.import_module(f"cases.{info.name}").CASES:
            yield info.name, case


def params() -> list[Any]:
    found = []
    counts: dict[str, int] = {}
    for family, case in all_cases():
        number = counts[case.op] = counts.get(case.op, 0) + 1
        for dtype, opset in case.variants():
            label = f"{family}-{case.op}-{case.id or number}-{dtype}-{opset}"
            found.append(pytest.param(case, dtype, opset, id=label))
    return found


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
