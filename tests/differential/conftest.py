"""What the differential tests compared, told at the end of the run."""

from __future__ import annotations

import pytest

from differential.tallied import Compared

_COMPARED = pytest.StashKey[Compared]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_COMPARED] = Compared()


@pytest.fixture
def compared(pytestconfig: pytest.Config) -> Compared:
    """Where a test notes the cases that it has run."""
    return pytestconfig.stash[_COMPARED]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    found = config.stash[_COMPARED]
    if found.cases:
        terminalreporter.write_line(str(found))
