"""Every operator as on a device: no kernel reads data or mixes sides unless it declares a seam."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from opcase import OpCase
from opgroups import CASES
from plan.onmeta import run_on_meta

import torch_ort_session as tos
from torch_ort_session.ir.graph import Node
from torch_ort_session.ops import registry
from torch_ort_session.ops.kernel import Kernel
from torch_ort_session.plan.lowering.steps import input_params


def on_tensors(feeds: dict[str, Any]) -> bool:
    return all(isinstance(value, np.ndarray) and value.dtype != object for value in feeds.values())


def with_constants(
    model: onnx.ModelProto, feeds: dict[str, Any], kernel: Kernel, node: Node
) -> dict[str, Any]:
    """Make weights of the inputs that the kernel wants as numbers, and return what is left to feed."""
    params = input_params(kernel, len(node.inputs))
    bound = {name for param, name in zip(params, node.inputs, strict=True) if param.host and name}
    kept = [info for info in model.graph.input if info.name not in bound]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    weights = [onnx.numpy_helper.from_array(np.asarray(feeds[name]), name) for name in sorted(bound)]
    model.graph.initializer.extend(weights)
    return {name: value for name, value in feeds.items() if name not in bound}


def problems(case: OpCase) -> list[str]:
    dtype, opset = case.variants()[0]
    feeds, model = case.feeds(dtype, 0), case.model(dtype, opset)
    session = tos.load(model, options=tos.Options(capture="off"))
    if not session.graph.nodes:  # a Constant
        return []
    (*_, node) = session.graph.nodes
    kernel = registry.find(node.op, node.domain, node.since)
    assert kernel is not None
    if node.name != "case" or not on_tensors(feeds) or kernel.varies or kernel.seam_reason(node):
        return []
    expected = session.run(None, feeds)
    run = run_on_meta(model, with_constants(model, feeds, kernel, node))
    found = list(run.mixed)
    for got, want in zip(run.outputs, expected, strict=True):
        if isinstance(want, torch.Tensor):
            ours, theirs = (tuple(got.shape), got.dtype), (tuple(want.shape), want.dtype)
            if ours != theirs:
                found.append(f"{ours} is not {theirs}")
            if not kernel.host_result and not got.is_meta:
                found.append("a result is on the host")
    return found


@pytest.mark.parametrize("name", CASES)
def test_no_kernel_reads_or_mixes(name: str) -> None:
    assert {case.id: found for case in CASES[name] if (found := problems(case))} == {}
