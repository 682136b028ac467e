"""benchmarks/chains.py: a chain is the same one in all its forms, and bounds bite."""

from __future__ import annotations

from typing import Any

import chains
import harness
import pytest
import torch
from expecttest import assert_expected_inline

import torch_ort_session as tos
from torch_ort_session.ops import native
from torch_ort_session.ops.native.chain import composite

pytest.importorskip("onnxruntime", reason="the oracle of this benchmark")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("one", chains.CHAINS, ids=lambda one: one.name)
def test_a_chain_is_the_same_in_all_its_forms(one: chains.Chain, dtype: torch.dtype) -> None:
    shape = (3, 20)
    inputs = chains.feeds(one, shape, dtype)
    out = torch.empty(shape, dtype=dtype)
    chains.steps(one, inputs, out)()
    wanted = composite(inputs, one.program, one.constants)
    assert chains.distance(out, wanted) <= chains.NEAR[dtype]
    if dtype == torch.float32:
        session = tos.load(chains.model(one, shape))
        got = session.run(None, {f"x{i}": x for i, x in enumerate(inputs)})[0]
        assert chains.distance(got, wanted) <= chains.NEAR[dtype]


def made(size: int = 1 << 20, dtype: str = "float32", error: float = 0.0, **seconds: float) -> dict[str, Any]:
    times = {name: harness.summarise([value] * 3) for name, value in seconds.items()}
    return {
        "chain": "Gelu",
        "shape": [2, 3],
        "dtype": dtype,
        "bytes": size,
        "errors": {"unfused": error},
        "bounds": {"time": 1.0, "unfused": 1e-6},
        "times": times,
    }


ROWS = [
    made(fused=1e-5, unfused=2e-5),
    made(fused=3e-5, unfused=2e-5),
    made(100, fused=3e-5, unfused=2e-5),
    made(dtype="session", error=float("nan"), fused=1e-5, unfused=2e-5, onnxruntime=5e-6),
]


def test_bounds_bite() -> None:
    assert_expected_inline(
        "\n".join(chains.judge(ROWS)),
        """\
Gelu 2x3 float32: 1.50 x the time unfused, above 1.00
Gelu 2x3 session: nan from what it is unfused, above 1.0e-06""",
    )


def test_the_table_has_a_line_for_each_row() -> None:
    assert_expected_inline(
        chains.describe(ROWS[::3]),
        """\
microseconds      fused  unfused  onnxruntime  fused / unfused  fused / onnxruntime
----------------  -----  -------  -----------  ---------------  -------------------
Gelu 2x3 float32     10       20            -             0.50                    -
Gelu 2x3 session     10       20            5             0.50                 2.00""",
    )


@pytest.mark.skipif(not native.status().usable, reason=f"native ops: {native.status().reason}")
def test_a_row_has_what_is_judged() -> None:
    native.load()
    row = chains.of_op(chains.CHAINS[0], (2, 40), torch.float32, 0.01)
    assert row["errors"] == {"unfused": 0.0} and set(row["times"]) == {"fused", "unfused"}
    row = chains.of_session(chains.CHAINS[1], (2, 40), 1, 0.01)
    assert row["errors"]["unfused"] <= 1e-6 and set(row["times"]) == {"fused", "unfused", "onnxruntime"}
    assert chains.judge([row | {"bytes": 0}]) == []
