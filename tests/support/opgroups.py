"""The cases of `tests/cases`: all of them, by operator, as parameters; their feeds as a run takes them."""

from __future__ import annotations

import importlib
import pkgutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
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
    """One a case; its dtypes and opsets are walked by the test."""
    counts: dict[str, int] = {}
    found = []
    for family, case in all_cases():
        number = counts[case.op] = counts.get(case.op, 0) + 1
        found.append(pytest.param(case, id=f"{family}-{case.op}-{case.id or number}"))
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


def named(case: OpCase, dtype: str | None = None, opset: int | None = None) -> str:
    """A case as messages name it."""
    first_dtype, first_opset = case.variants()[0]
    label = f"{case.op} {case.id}" if case.id else f"{case.op} {dict(case.attrs)}"
    return f"{label}, {dtype or first_dtype}, opset {opset or first_opset}"


def check_each(checks: Iterable[tuple[str, Callable[[], None]]]) -> None:
    """Make checks of which one failure does not hide another.

    Args:
        checks: Each with what a message calls it.

    Raises:
        AssertionError: It names every check that failed; the first failure is its cause.
    """
    failures: dict[str, Exception] = {}
    for name, check in checks:
        try:
            check()
        except Exception as error:
            failures[name] = error
    if failures:
        text = "\n".join(f"{name}: {error!r}" for name, error in failures.items())
        raise AssertionError(text) from next(iter(failures.values()))
