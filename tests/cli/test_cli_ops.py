"""`torch-ort-session ops` on a small table of kernels, and its totals on the real one."""

from __future__ import annotations

import json
from types import SimpleNamespace

import onnx
import onnxruntime
import pytest
from expecttest import assert_expected_inline
from torch import Tensor

import torch_ort_session as tos
from torch_ort_session.cli import ops
from torch_ort_session.ir import schema
from torch_ort_session.ops import contrib, gaps, registry
from torch_ort_session.ops.kernel import Kernel, kernel, kernels_of


@kernel("Add", since=(7, 13))
def add(a: Tensor, b: Tensor) -> Tensor:
    return a


@kernel("NonZero", since=(9, 13), seam="the output shape depends on the data")
def non_zero(x: Tensor) -> Tensor:
    return x


@kernel("Frobnicate", since=(1,), domain="acme", seam=lambda node: None)
def frobnicate(x: Tensor) -> Tensor:
    return x


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three kernels, an onnx that knows seven operators, and an onnxruntime that knows two."""
    table = {(k.domain, k.op): (k,) for fn in (add, non_zero, frobnicate) for k in kernels_of(fn)}

    def find(op: str, domain: str, since: int) -> Kernel | None:
        return next((k for k in table.get((domain, op), ()) if since in k.since), None)

    known = {
        "": ("Add", "Celu", "NonZero", "Scatter", "Sin"),
        "ai.onnx.ml": ("Scaler",),
        "ai.onnx.preview.training": ("Gradient",),
    }
    fake = SimpleNamespace(**{name: getattr(schema, name) for name in dir(schema)})
    fake.operators = known.__getitem__
    monkeypatch.setattr(ops, "registry", SimpleNamespace(kernels=lambda: table, find=find))
    monkeypatch.setattr(ops, "schema", fake)
    monkeypatch.setattr(contrib, "REVISIONS", {"Gelu": (1,), "Snpe": (1,)})


def test_the_table(command, few: None) -> None:
    assert_expected_inline(
        command("ops").out,
        """\
op          domain   revisions  seam
Add         ai.onnx  7 13       -
NonZero     ai.onnx  9 13       the output shape depends on the data
Frobnicate  acme     1          depends on the node
3 operators, 5 revisions
""",
    )


def test_one_domain(command, few: None) -> None:
    assert_expected_inline(
        command("ops", "--domain", "acme").out,
        """\
op          domain  revisions  seam
Frobnicate  acme    1          depends on the node
1 operator, 1 revision
""",
    )


def test_what_is_missing(command, few: None) -> None:
    assert_expected_inline(
        command("ops", "--missing").out,
        """\
without a kernel
  Add       ai.onnx                   1 6 14  no kernel
  Scatter   ai.onnx                   9       no kernel
  Sin       ai.onnx                   7 22    no kernel
  Scaler    ai.onnx.ml                1       no kernel
  Gradient  ai.onnx.preview.training  1       no kernel
  Gelu      com.microsoft             1       no kernel
  Snpe      com.microsoft             1       its data is an opaque blob of another runtime
without a kernel of their own; they run through the function body of their schema
  Celu  ai.onnx  12 28
""",
    )
    assert_expected_inline(
        command("ops", "--missing", "--domain", "acme").err,
        """\
torch-ort-session: error: the operators of domain 'acme' are not known, so nothing can be missing
""",
    )


def test_what_is_missing_in_truth(command) -> None:
    for domain in ("ai.onnx", "ai.onnx.ml", "ai.onnx.preview.training"):
        assert_expected_inline(
            command("ops", "--missing", "--domain", domain).out,
            """\
without a kernel
  none
without a kernel of their own; they run through the function body of their schema
  none
""",
        )
    assert_expected_inline(
        command("ops", "--missing", "--domain", "com.microsoft").out,
        """\
without a kernel
  ConvStateReplay                    com.microsoft  1  it works on addresses of one runtime's device buffers
  DequantizeBFP                      com.microsoft  1  its packed format is not part of its documentation
  DynamicSparseAttention             com.microsoft  1  a step of one GPU engine, with nothing to check it by
  EPContext                          com.microsoft  1  its data is an opaque blob of another runtime
  GatedDeltaNetStateReplay           com.microsoft  1  it works on addresses of one runtime's device buffers
  GatherPacked                       com.microsoft  1  its packed format is not part of its documentation
  Mamba2Verify                       com.microsoft  1  a step of one GPU engine, with nothing to check it by
  MatMulFpQ4                         com.microsoft  1  its data is an opaque blob of another runtime
  MatMulPacked                       com.microsoft  1  its packed format is not part of its documentation
  MoEPacked                          com.microsoft  1  its packed format is not part of its documentation
  PackedSparseAttentionIndexer       com.microsoft  1  a step of one GPU engine, with nothing to check it by
  PackedSparseAttentionIndexerMerge  com.microsoft  1  a step of one GPU engine, with nothing to check it by
  QOrderedAttention                  com.microsoft  1  its int8 roundings between steps are one GPU library's
  QOrderedLongformerAttention        com.microsoft  1  its int8 roundings between steps are one GPU library's
  QuantizeBFP                        com.microsoft  1  its packed format is not part of its documentation
  RMSNormRotary                      com.microsoft  1  a step of one GPU engine, with nothing to check it by
  Snpe                               com.microsoft  1  its data is an opaque blob of another runtime
  SparseAttentionIndexer             com.microsoft  1  a step of one GPU engine, with nothing to check it by
  SparsePagedAttention               com.microsoft  1  a step of one GPU engine, with nothing to check it by
  SpeculativePrefixCommit            com.microsoft  1  it works on addresses of one runtime's device buffers
without a kernel of their own; they run through the function body of their schema
  none
""",
    )


def test_the_list_of_com_microsoft_is_that_of_onnxruntime() -> None:
    state = onnxruntime.capi.onnxruntime_pybind11_state
    installed: dict[str, tuple[int, ...]] = {}
    for item in state.get_all_operator_schema():
        if item.domain == contrib.DOMAIN:
            installed[item.name] = tuple(sorted({*installed.get(item.name, ()), item.since_version}))
    # Another release may know others; these are the facts of one.
    assert onnxruntime.__version__.rpartition(".")[0] == contrib.SOURCE_VERSION
    assert installed == dict(contrib.REVISIONS)


def test_gaps_have_no_kernel_and_are_known() -> None:
    served = registry.kernels().keys()
    assert not gaps.GAPS.keys() & served
    for domain, op in gaps.GAPS:
        assert op in (contrib.REVISIONS if domain == contrib.DOMAIN else schema.operators(domain))
    assert set(gaps.GAPS.values()) == set(gaps.Reason)


def test_kernels_of_com_microsoft_are_of_listed_operators() -> None:
    for (domain, op), kernels in registry.kernels().items():
        if domain == contrib.DOMAIN:
            assert {since for k in kernels for since in k.since} == set(contrib.REVISIONS[op]), op


def test_a_gap_says_why_at_load() -> None:
    text = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]> g (float[2] x) => (float[2] y) {'
    text += " [one] y = com.microsoft.EPContext(x) }"
    with pytest.raises(tos.UnsupportedOpError) as caught:
        tos.load(onnx.parser.parse_model(text))
    assert_expected_inline(
        str(caught.value),
        """\
the model uses 1 unsupported operator(s):
  com.microsoft::EPContext revision 1 (its data is an opaque blob of another runtime): nodes 'one'
`torch-ort-session ops` lists what is supported.""",
    )


def test_one_operator(command, few: None) -> None:
    outcome = command("ops", "--check", "Add")
    assert outcome.code == 1
    assert_expected_inline(
        outcome.out,
        """\
Add
  ai.onnx  1   missing  no kernel
  ai.onnx  6   missing  no kernel
  ai.onnx  7   kernel   add in cli/test_cli_ops.py
  ai.onnx  13  kernel   add in cli/test_cli_ops.py
  ai.onnx  14  missing  no kernel
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
    assert first == {"op": "Add", "domain": "ai.onnx", "since": [7, 13], "seam": None}
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
