"""The native ops that kernels declare are those that their sources call."""

from __future__ import annotations

from nativescan import native_ops
from torch import Tensor

from torch_ort_session.ops import native, registry
from torch_ort_session.ops.fused import FUSED
from torch_ort_session.ops.kernel import KernelContext


def test_m22_kernels_declare_the_native_ops_that_they_call() -> None:
    kernels = [kernel for served in registry.kernels().values() for kernel in served] + [FUSED]
    declared = {f"{k.domain}::{k.op} {k.since}": k.native for k in kernels}
    called = {f"{k.domain}::{k.op} {k.since}": native_ops(k.fn) for k in kernels}
    assert len(declared) == len(kernels) and declared == called
    assert sum(map(bool, called.values())) > 100


def by_name(x: Tensor) -> Tensor:
    op = native.cpu_op("gemv", x)
    return x if op is None else op(x)


class Layer:
    def rows(self, x: Tensor) -> Tensor:
        op = native.device_op("top_k", x)
        return by_name(x) if op is None else op(x)


def checked(x: Tensor, ctx: KernelContext) -> Tensor:
    validation = ctx.validation
    return Layer().rows(x) if validation is None else validation.check_index(x, 2, ctx.node)


def plain(x: Tensor) -> Tensor:
    return x


def test_the_scan_follows_helpers_methods_and_checks() -> None:
    assert native_ops(plain, __name__) == ()
    assert native_ops(by_name, __name__) == ("gemv",)
    assert native_ops(Layer.rows, __name__) == ("gemv", "top_k")
    assert native_ops(checked, __name__) == ("check_index", "gemv", "top_k")
