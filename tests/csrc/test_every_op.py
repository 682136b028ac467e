"""What holds for every op of the extension, so that a new one cannot be forgotten."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from hostcuda import ROOT

from torch_ort_session.ops import native

HERE = Path(__file__).parent


def schemas() -> list[torch.FunctionSchema]:
    """Those of the loaded library that take tensors."""
    if not native.load():
        pytest.skip("the extension is not built")
    every = torch._C._jit_get_all_schemas()
    ours = [schema for schema in every if schema.name.startswith("torch_ort_session::")]
    return [schema for schema in ours if "Tensor" in str(schema)]


def test_torch_has_checked_every_schema() -> None:
    checking = [path.read_text() for path in HERE.glob("test_*.py") if path != Path(__file__)]
    checking = [text for text in checking if "torch.library.opcheck(" in text]
    names = {schema.name.split("::")[1] for schema in schemas() if native.has_kernel(bare(schema), "cpu")}
    assert len(names) > 5
    assert {name for name in names if not any(name in text for text in checking)} == set()


def test_every_op_has_a_shape_where_there_is_no_data() -> None:
    without = []
    for schema in schemas():
        name = schema.name if not schema.overload_name else f"{schema.name}.{schema.overload_name}"
        entry = torch._library.simple_registry.singleton.find(name)
        if entry.fake_impl.kernel is None:
            without.append(name)
    assert without == []


def test_every_cuda_kernel_is_emulated() -> None:
    bodies = "".join(p.read_text() for p in (ROOT / "csrc").rglob("*.cuh"))
    kernels = re.findall(r"__global__[^{;]*?\b(\w+_kernel)\(", bodies)
    emulated = "".join(p.read_text() for p in (HERE / "emulated").glob("*.cpp"))
    assert len(kernels) == bodies.count("__global__") > 10
    assert {name for name in kernels if not re.search(rf"\b{name}\b", emulated)} == set()


def bare(schema: torch.FunctionSchema) -> str:
    """Its name without namespace and overload."""
    return str(schema.name.split("::")[1])
