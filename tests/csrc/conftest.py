"""Which CUDA kernels were emulated, told at the end of the run."""

from __future__ import annotations

import hostcuda
import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    launched = {key: count for key, count in hostcuda.LAUNCHED.items() if key[0] != "provoking_kernels"}
    if launched:
        kernels = sorted({source for source, _ in launched})
        terminalreporter.write_line(
            f"emulated: {len(launched)} CUDA kernels of {len(kernels)} files ({', '.join(kernels)}), "
            f"in {sum(launched.values())} launches"
        )
