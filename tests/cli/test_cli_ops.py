"""`torch-ort-session ops` on a small table of kernels, and its totals on the real one."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from expecttest import assert_expected_inline
from torch import Tensor

from torch_ort_session.cli import ops
from torch_ort_session.ir import schema
from torch_ort_session.ops.kernel import Kernel, kernel, kernels_of


@kernel("Add", since=(7, 13))
def add(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    return a


@kernel("NonZero", since=(9, 13), seam="the output shape depends on the data")
def non_zero(x: Tensor) -> Tensor:
    return x


@kernel("Frobnicate", since=(1,), domain="acme", seam=lambda node: None)
def frobnicate(x: Tensor) -> Tensor:
    return x


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three kernels, and an onnx that knows five operators."""
    table = {(k.domain, k.op): (k,) for fn in (add, non_zero, frobnicate) for k in kernels_of(fn)}

    def find(op: str, domain: str, since: int) -> Kernel | None:
        return next((k for k in table.get((domain, op), ()) if since in k.since), None)

    known = {"": ("Add", "Celu", "NonZero", "Scatter", "Sin"), "ai.onnx.ml": ("Scaler",)}
    fake = SimpleNamespace(**{name: getattr(schema, name) for name in dir(schema)})
    fake.operators = known.__getitem__
    monkeypatch.setattr(ops, "registry", SimpleNamespace(kernels=lambda: table, find=find))
    monkeypatch.setattr(ops, "schema", fake)


def test_the_table(command, few: None) -> None:
    assert_expected_inline(
        command("ops").out,
        """\
op          domain   revisions  out  seam
Add         ai.onnx  7 13       out  -
NonZero     ai.onnx  9 13       -    the output shape depends on the data
Frobnicate  acme     1          -    depends on the node
3 operators, 5 revisions
""",
    )


def test_one_domain(command, few: None) -> None:
    assert_expected_inline(
        command("ops", "--domain", "acme").out,
        """\
op          domain  revisions  out  seam
Frobnicate  acme    1          -    depends on the node
1 operator, 1 revision
""",
    )


def test_what_is_missing(command, few: None) -> None:
    assert_expected_inline(
        command("ops", "--missing").out,
        """\
without a kernel
  Add      ai.onnx     1 6 14
  Scatter  ai.onnx     9
  Sin      ai.onnx     7 22
  Scaler   ai.onnx.ml  1
without a kernel of their own; they run through the function body of their schema
  Celu  ai.onnx  12 28
""",
    )
    assert_expected_inline(
        command("ops", "--missing", "--domain", "acme").err,
        """\
torch-ort-session: error: the installed onnx has no schemas of domain 'acme', so nothing can be missing
""",
    )


def test_one_operator(command, few: None) -> None:
    outcome = command("ops", "--check", "Add")
    assert outcome.code == 1
    assert_expected_inline(
        outcome.out,
        """\
Add
  ai.onnx  1   missing
  ai.onnx  6   missing
  ai.onnx  7   kernel   add in cli/test_cli_ops.py
  ai.onnx  13  kernel   add in cli/test_cli_ops.py
  ai.onnx  14  missing
""",
    )
    assert command("ops", "--check", "Frobnicate").code == 0


def test_an_operator_that_nobody_knows(command, few: None) -> None:
    outcome = command("ops", "--check", "Sub1")
    assert outcome.code == 1
    assert_expected_inline(
        outcome.err,
        """\
torch-ort-session: error: no operator 'Sub1' is known, neither here nor to the installed onnx
""",
    )


def test_json(command, few: None) -> None:
    first, *others = json.loads(command("ops", "--json").out)
    assert first.pop("function") == f"{__name__}.add"
    assert first == {"op": "Add", "domain": "ai.onnx", "since": [7, 13], "out": True, "seam": None}
    assert [other["seam"] for other in others] == [
        "the output shape depends on the data",
        "depends on the node",
    ]
    checked = json.loads(command("ops", "--check", "NonZero", "--json").out)
    assert_expected_inline(
        "\n".join(map(json.dumps, checked)),
        """\
{"domain": "ai.onnx", "since": 9, "status": "kernel", "where": "non_zero in cli/test_cli_ops.py"}
{"domain": "ai.onnx", "since": 13, "status": "kernel", "where": "non_zero in cli/test_cli_ops.py"}""",
    )
    assert set(json.loads(command("ops", "--missing", "--json").out)) == {"missing", "through_function_body"}


def test_the_real_table(command) -> None:
    lines = command("ops").out.splitlines()
    assert any(line.split()[:2] == ["Add", "ai.onnx"] for line in lines)
    assert command("ops", "--check", "Add").code == 0


def test_an_operator_as_messages_write_it(command) -> None:
    assert command("ops", "--check", "ai.onnx::Add").out == command("ops", "--check", "Add").out
    error = command("ops", "--check", "layernormalization").err
    assert error.endswith("; is 'LayerNormalization' meant?\n")
