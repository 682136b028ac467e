"""What the library has for CUDA: asked of the library itself, and used where the tensors are."""

from __future__ import annotations

import dataclasses
from types import ModuleType, SimpleNamespace

import pytest
import torch
from hostcuda import ROOT
from torch._subclasses.fake_tensor import FakeTensorMode

from torch_ort_session.explain.backend import BackendReport, Extension, NativeUse, Readiness
from torch_ort_session.ops import native
from torch_ort_session.ops.common.norms import row_norm
from torch_ort_session.ops.kernel import kernels_of
from torch_ort_session.ops.microsoft import norm
from torch_ort_session.ops.microsoft.norm import skip_simplified_layer_normalization
from torch_ort_session.ops.native import checks as native_checks
from torch_ort_session.runtime.validation import validator as validation

needs_extension = pytest.mark.skipif(
    not native.status().usable, reason=f"native ops: {native.status().reason}"
)
ON_CUDA = {
    "activate",
    "cache_appended",
    "check_index",
    "elementwise_chain",
    "expert_rows",
    "gemv",
    "gqa_decode",
    "matmul_nbits",
    "rotary",
    "sample_token",
    "skip_rms_norm",
}
"""The ops with a CUDA kernel, each of which has a body that runs emulated in tests."""


def test_every_kernel_body_is_emulated() -> None:
    # Parts of several bodies, and the first kernel of gqa_decode, which is emulated with the others.
    parts = {"device", "nbits", "reduce", "word", "gqa_decode_renew"}
    bodies = {p.stem for p in (ROOT / "csrc").rglob("*.cuh")} - parts
    emulated = {p.stem for p in (ROOT / "tests" / "csrc" / "emulated").glob("*.cpp")}
    assert bodies == ON_CUDA and bodies <= emulated
    bindings = {p.stem.removesuffix("_bind") for p in (ROOT / "csrc").rglob("*_bind.cpp")}
    assert bindings - {"architectures"} == ON_CUDA


@needs_extension
def test_a_library_serves_the_devices_that_it_was_built_for() -> None:
    assert native.load()
    with_cuda = bool(native.cuda_architectures())
    assert {op for op in ON_CUDA if native.has_kernel(op, "cuda")} == (ON_CUDA if with_cuda else set())
    assert all(native.has_kernel(op, "cpu") for op in ON_CUDA)
    assert not native.has_kernel("no_such_op", "cpu") and not native.has_kernel("check_index", "meta")
    assert (native_checks.index_check("cuda") is not None) == with_cuda
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
    assert validation.checks_on(device).index is torch.ops.torch_ort_session.check_index.default
    assert validation.checks_on(torch.device("cpu")) is validation.PLAIN
    monkeypatch.setattr(native, "has_kernel", lambda op, kind: kind == "cpu")
    assert validation.checks_on(device) is validation.PLAIN


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


def test_rows_on_cuda_are_normalized_natively_where_that_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    def op(*given: object) -> tuple[object, ...]:
        asked.append(given)
        return given[:3]

    monkeypatch.setattr(native, "status", lambda: native.Status(None, True, ""))
    monkeypatch.setattr(native, "load", lambda: True)
    served = ("skip_rms_norm", "cuda")
    monkeypatch.setattr(native, "_op_on", lambda *wanted: op if wanted == served else None)
    with FakeTensorMode():
        x, gamma = torch.empty(2, 8, device="cuda"), torch.empty(8, device="cuda")
        assert row_norm(x, x, None, gamma, 0.5) == (x, x, None)
        assert row_norm(x, x, gamma.to(torch.float16), gamma, 0.5) is None
        assert row_norm(x, None, None, gamma.cpu(), 0.5) is None
        assert row_norm(x.cpu(), None, None, gamma.cpu(), 0.5) is None
        trained = gamma.requires_grad_()
        assert row_norm(x, None, None, trained, 0.5) is None
        with torch.no_grad():
            assert row_norm(x, None, None, trained, 0.5, wants_inverse=True) is not None
    assert [given[4:] for given in asked] == [(0.5, False, False), (0.5, False, True)]


def test_the_normalization_of_a_model_takes_what_the_native_op_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def made(x: torch.Tensor, skip: torch.Tensor, *rest: object, **wanted: bool) -> tuple[torch.Tensor, ...]:
        asked.append((rest[2], *wanted.values()))
        return x * 3, x + skip, x[:, :1] * 5

    monkeypatch.setattr(norm, "row_norm", made)
    x, skip, gamma = torch.ones(2, 3), torch.ones(2, 3), torch.ones(3)
    for wanted in ((True, False, True, True), (True,)):
        node = SimpleNamespace(wants=lambda place, wanted=wanted: place < len(wanted) and wanted[place])
        y, mean, inverse, total = skip_simplified_layer_normalization(x, skip, gamma, epsilon=0.5, ctx=node)
        assert torch.equal(y, x * 3) and mean is None
        assert (inverse is not None) == (total is not None) == (len(wanted) == 4)
    assert asked == [(0.5, True, True), (0.5, False, False)]


def test_m22_a_report_of_a_session_on_cuda_tells_what_the_library_has_there() -> None:
    (kernel,) = kernels_of(skip_simplified_layer_normalization)
    assert kernel.native == ("skip_rms_norm",)
    both = ("check_index", "skip_rms_norm")
    uses = (NativeUse("ai.onnx::Gather", 2, both[:1]), NativeUse("com.microsoft::Norm", 1, both[1:]))
    found = Extension("/lib.so", "", 2, both, cuda_ops=both, architectures=("8.0", "9.0"))
    assert found.compiled_for == "the CPU, CUDA 8.0 9.0 (check_index, skip_rms_norm)"

    def report(extension: Extension) -> BackendReport:
        return BackendReport(Readiness("cuda:0", "", extension, "CUDA graphs"), "auto", uses, ())

    assert report(found).native == uses and report(found).fallbacks == ()
    partly = dataclasses.replace(found, cuda_ops=("check_index",))
    assert (report(partly).native, report(partly).fallbacks) == (uses[:1], uses[1:])
    none = dataclasses.replace(found, cuda_ops=(), architectures=())
    assert report(none).native == () and none.compiled_for == "the CPU"
