"""What the library has for CUDA: asked of the library itself, and used where the tensors are."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace

import pytest
import torch
from hostcuda import ROOT

from torch_ort_session.ops import native
from torch_ort_session.runtime import validation
from torch_ort_session.runtime import word as layout

needs_extension = pytest.mark.skipif(
    not native.status().usable, reason=f"native ops: {native.status().reason}"
)
ON_CUDA = {"check_index"}
"""The ops with a CUDA kernel, each of which has a body in `csrc/cuda` that runs emulated in tests."""


def test_every_kernel_body_is_emulated() -> None:
    bodies = {p.stem for p in (ROOT / "csrc" / "cuda").glob("*.cuh")} - {"device", "word"}
    emulated = {p.stem for p in (ROOT / "tests" / "csrc" / "emulated").glob("*.cpp")}
    assert bodies == ON_CUDA and bodies <= emulated
    assert {p.stem.removesuffix("_cuda") for p in (ROOT / "csrc" / "cuda").glob("*_cuda.cpp")} == ON_CUDA


@needs_extension
def test_a_library_serves_the_devices_that_it_was_built_for() -> None:
    assert native.load()
    with_cuda = bool(native.cuda_architectures())
    assert {op for op in ON_CUDA if native.has_kernel(op, "cuda")} == (ON_CUDA if with_cuda else set())
    assert native.has_kernel("check_index", "cpu")
    assert not native.has_kernel("no_such_op", "cpu") and not native.has_kernel("check_index", "meta")
    assert (native.index_check("cuda") is not None) == with_cuda
    if torch.version.cuda is None:
        assert not with_cuda


def test_architectures_are_told_as_torch_tells_them(monkeypatch: pytest.MonkeyPatch) -> None:
    namespace = SimpleNamespace(cuda_architectures=lambda: "(800,900,1030,1200)")
    monkeypatch.setattr(torch.ops, "torch_ort_session", namespace)
    assert native.cuda_architectures() == ("8.0", "9.0", "10.3", "12.0")


@needs_extension
def test_m11_a_session_on_cuda_checks_natively_where_the_library_can(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device("cuda")
    monkeypatch.setattr(native, "has_kernel", lambda op, kind: kind == "cuda")
    assert validation.check_on(device) is torch.ops.torch_ort_session.check_index.default
    assert validation.check_on(torch.device("cpu")) is layout.check_index
    monkeypatch.setattr(native, "has_kernel", lambda op, kind: kind == "cpu")
    assert validation.check_on(device) is layout.check_index


def test_without_a_device_and_a_list_the_release_is_compiled_for() -> None:
    helpers = ModuleType("helpers")

    def nothing_is_known() -> list[str]:
        return [][-1]

    helpers._get_cuda_arch_flags = nothing_is_known  # type: ignore[attr-defined]
    assert native._architecture_flags(helpers) == [
        "-gencode=arch=compute_80,code=sm_80",
        "-gencode=arch=compute_90,code=sm_90",
        "-gencode=arch=compute_100,code=sm_100",
        "-gencode=arch=compute_100,code=compute_100",
    ]
    helpers._get_cuda_arch_flags = lambda: ["-gencode=arch=compute_90,code=sm_90"]  # type: ignore[attr-defined]
    assert native._architecture_flags(helpers) == []
