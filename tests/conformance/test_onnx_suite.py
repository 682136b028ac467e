"""ONNX's own backend test suite, on the CPU, with a typed list of what does not pass.

What passes is run by `test_onnx_captured.py` as well, where replays are eager runs to the bit and the suite
judges a replay, so that eager runs alone are left out of `make test`.
"""

from __future__ import annotations

import pytest
import suite
from gaps import GAPS

SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in suite.CASES if name not in GAPS]


@pytest.mark.parametrize("name", [*sorted(GAPS), *SLOW])
def test_conformance(name: str) -> None:
    failures, skipped = suite.run(name)
    if name in GAPS:
        assert failures or skipped, f"{name} passes now: take it off the list in gaps.py"
        return
    assert not skipped, f"{name} was skipped: {skipped[0]}"
    assert not failures, failures[0]


def test_gap_list_names_real_tests() -> None:
    assert sorted(set(GAPS) - set(suite.CASES)) == []


def test_the_suite_is_complete() -> None:
    """A suite that silently lost tests would look like progress."""
    assert len(suite.CASES) >= 2000
