"""What holds for all tests: those for CUDA, tests in several processes, and what was emulated."""

from __future__ import annotations

import gc
import os
from typing import Any

import hostcuda
import pytest
import torch


def pytest_addoption(parser: pytest.Parser) -> None:
    """How many random draws of the same thing there are; `make full` asks for all."""
    parser.addoption("--draws", choices=("few", "all"), default="few", help="how much is drawn at random")


@pytest.fixture
def all_drawn(pytestconfig: pytest.Config) -> bool:
    """Whether a test makes all the draws that it can, not a share of them."""
    return bool(pytestconfig.getoption("draws") == "all")


def pytest_configure(config: pytest.Config) -> None:
    """Processes side by side share the cores: threads that wait for each other would spin."""
    if hasattr(config, "workerinput"):
        threads = max(1, (os.cpu_count() or 1) // int(config.workerinput["workercount"]))
        torch.set_num_threads(threads)
        # Of the processes that tests start.
        os.environ.setdefault("OMP_NUM_THREADS", str(threads))


def pytest_collection_finish() -> None:
    """Keep the garbage collector from what stays until the end: tests that collect went through all of it."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked `cuda` where there is no device; FAIL_WITHOUT_CUDA=1 makes it fail instead."""
    if item.get_closest_marker("cuda") is None or torch.cuda.is_available():
        return
    if os.environ.get("FAIL_WITHOUT_CUDA") == "1":
        pytest.fail("there is no CUDA device")
    pytest.skip("there is no CUDA device")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand on which kernels this process emulated."""
    if hasattr(session.config, "workeroutput"):
        launched = [[*key, count] for key, count in hostcuda.LAUNCHED.items()]
        session.config.workeroutput["launched"] = launched


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Count what another process emulated."""
    for source, entry, count in getattr(node, "workeroutput", {}).get("launched", ()):
        hostcuda.LAUNCHED[source, entry] += count


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell which CUDA kernels were emulated, and how often."""
    launched = {key: count for key, count in hostcuda.LAUNCHED.items() if key[0] != "provoking_kernels"}
    if launched:
        kernels = sorted({source for source, _ in launched})
        terminalreporter.write_line(
            f"emulated: {len(launched)} CUDA kernels of {len(kernels)} files ({', '.join(kernels)}), "
            f"in {sum(launched.values())} launches"
        )
