"""Kernels on a device that holds no data: none reads tensors on the host, none makes its tensors elsewhere.

torch's meta device refuses a mixture with CPU tensors as a GPU would, and has nothing to read.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from google.protobuf.message import Message
from onnx import helper
from opcase import OpCase, onnx_type
from opgroups import CASES, check_each, named

from torch_ort_session.ir import schema
from torch_ort_session.ir.load import load_model
from torch_ort_session.ir.types import ElementType
from torch_ort_session.ops import registry
from torch_ort_session.ops.kernel import Kernel, KernelContext
from torch_ort_session.ops.signature import InputParam
from torch_ort_session.runtime.values.feeds import from_numpy

META = torch.device("meta")


def runnable(op: str) -> Iterator[tuple[OpCase, Kernel]]:
    """The cases of an operator that can run without data."""
    for case in CASES[op]:
        dtype, opset = case.variants()[0]
        kernel = kernel_of(case, opset)
        # Constant becomes a weight when a model is loaded; torch has no random numbers without data.
        if kernel is None or kernel.host_result or kernel.varies or case.op == "Constant":
            continue
        # The body of a Gradient is made of the graph around it.
        if numeric(case, dtype) and case.op != "Gradient":
            yield case, kernel


def kernel_of(case: OpCase, opset: int) -> Kernel | None:
    since = schema.resolve(case.op, case.domain, opset)
    known = since.since if since else opset if schema.newest_opset(case.domain) is None else 0
    kernel = registry.find(case.op, case.domain, known)
    return None if kernel is None or kernel.seam is not None else kernel


def numeric(case: OpCase, dtype: str) -> bool:
    """Whether neither strings nor sequences go in, and no body or tensor is an attribute."""
    inputs = case.feeds(dtype, 0).values()
    plain = all(isinstance(value, np.ndarray) and value.dtype != object for value in inputs)
    return plain and not any(isinstance(value, Message) for value in case.attrs.values())


def argument(value: Any, param: InputParam) -> Any:
    if value is None:
        return None
    if param.host in ("ints", "floats"):
        return [int(v) if param.host == "ints" else v for v in np.asarray(value).reshape(-1).tolist()]
    if param.host is not None:
        number = np.asarray(value).reshape(-1)[0].item()
        return int(number) if param.host == "int" else number
    return from_numpy("x", value).to(META)


def attributes(model_node: Any) -> dict[str, Any]:
    values = {item.name: helper.get_attribute_value(item) for item in model_node.attribute}
    return {
        name: value.decode()
        if isinstance(value, bytes)
        else [v.decode() if isinstance(v, bytes) else v for v in value]
        if isinstance(value, list)
        else value
        for name, value in values.items()
    }


@pytest.mark.parametrize("op", CASES)
def test_meta(op: str) -> None:
    check_each((named(case), partial(run_on_meta, case, kernel)) for case, kernel in runnable(op))


def test_most_operators_have_a_case_that_needs_no_data() -> None:
    assert sum(any(True for _ in runnable(op)) for op in CASES) > 0.8 * len(CASES)


def run_on_meta(case: OpCase, kernel: Kernel) -> None:
    dtype, opset = case.variants()[0]
    model = case.model(dtype, opset)
    feeds = case.feeds(dtype, 0)
    values = [feeds.get(name) for name in model.graph.node[0].input]
    params = kernel.signature.inputs
    arguments = [argument(v, params[min(i, len(params) - 1)]) for i, v in enumerate(values)]
    keywords = attributes(model.graph.node[0])
    if kernel.signature.takes_ctx:
        node = load_model(model).graph.nodes[-1]
        kinds = tuple(None if v is None else ElementType(onnx_type(v)) for v in values)
        keywords["ctx"] = KernelContext(
            node=node, device=META, wanted=tuple(bool(name) for name in node.outputs), input_types=kinds
        )
    results = kernel.fn(*arguments, **keywords)
    for item in results if isinstance(results, tuple) else (results,):
        assert item is None or isinstance(item, tuple) or item.device == META
