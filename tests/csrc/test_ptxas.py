"""The table of a CUDA build: what it shows, and what it does not let pass."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from expecttest import assert_expected_inline
from hostcuda import ROOT

LOG = """\
ptxas info    : 28 bytes gmem
ptxas info    : Compiling entry function '_ZN3tos4cuda18check_index_kernelIlEEvPKT_PllliPi' for 'sm_90'
ptxas info    : Function properties for _ZN3tos4cuda18check_index_kernelIlEEvPKT_PllliPi
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 12 bytes smem
ptxas info    : Compiling entry function '_Z5otheri' for 'sm_80'
ptxas info    : Function properties for _Z5otheri
    8 bytes stack frame, SPILLS bytes spill stores, 0 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers
/venv/site-packages/torch/include/torch/csrc/api/all.h:3:1: warning: unused parameter 'x'
"""


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ptxas_table", ROOT / ".ci" / "ptxas.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # A dataclass looks its module up.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def outcome(text: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    log = folder / "build.log"
    log.write_text(text, encoding="utf-8")
    code = tool().main(str(log))
    return code, capsys.readouterr().out.replace("tos::cuda::", "")


def test_a_build_without_spills_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, told = outcome(LOG.replace("SPILLS", "0"), tmp_path, capsys)
    assert code == 0
    assert_expected_inline(
        told,
        """\
kernel                                        device  registers  shared  stack  spills
check_index_kernel<long>                       sm_90         32      12      0       0
other                                          sm_80        255       0      8       0
no warning
2 kernels, 0 of them spill, 0 warnings
""",
    )


def test_a_spill_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, told = outcome(LOG.replace("SPILLS", "16"), tmp_path, capsys)
    assert code == 1 and "2 kernels, 1 of them spill, 0 warnings" in told


@pytest.mark.parametrize(
    "line",
    [
        "csrc/norm/a/a_bind.cpp:3:1: warning: unused parameter 'x' [-Wunused-parameter]",
        "/tmp/source/csrc/norm/a/a.cuh(20): warning #177-D: variable was declared but never referenced",
        "ptxas warning : Registers are spilled to local memory in function 'a'",
    ],
)
def test_a_warning_on_a_file_of_ours_fails(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = outcome(LOG.replace("SPILLS", "0") + line, tmp_path, capsys)
    assert code == 1 and line in told


def test_a_log_without_kernels_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome("nothing was compiled\n", tmp_path, capsys)[0] == 1
