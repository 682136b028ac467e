"""Bodies that a naive recording gets wrong: right with other data, or refused, as `tapecases.py` pins.

Each runs in a process of its own, so that a crash is one failed test.
"""

from __future__ import annotations

import pytest
from tapecases import CASES
from tapelab import forked, load_provoking_ops, needs_extension, trial

pytestmark = needs_extension


@pytest.mark.parametrize("name", CASES)
def test_body_replays_right_or_is_refused(name: str) -> None:
    load_provoking_ops()
    body, expected = CASES[name]
    assert forked(lambda: trial(body)) == expected
