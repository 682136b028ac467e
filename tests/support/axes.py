"""Parameters of which `make test` runs a cross, and `make full` the product."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest


def crossed(*axes: Sequence[Any]) -> list[Any]:
    """The product of axes; what differs from their first values in several axes is slow.

    For axes of which no two meet in one place of the code: dtypes, which are parameters of a template, say,
    and shapes. Of axes that do meet, the product is one axis.

    Args:
        axes: The values of each parameter, or of several parameters as tuples.
    """
    found = []
    for places in itertools.product(*(range(len(axis)) for axis in axes)):
        values = [axis[place] for axis, place in zip(axes, places, strict=True)]
        flat = [each for value in values for each in (value if isinstance(value, tuple) else (value,))]
        marks = [pytest.mark.slow] if sum(place > 0 for place in places) > 1 else []
        found.append(pytest.param(*flat, marks=marks))
    return found


def beyond(values: Sequence[Any], count: int) -> list[Any]:
    """Values of a parameter that are all alike, seeds say; those behind the first ones are slow."""
    return [*values[:count], *(pytest.param(value, marks=pytest.mark.slow) for value in values[count:])]
