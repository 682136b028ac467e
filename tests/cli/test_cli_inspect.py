"""`torch-ort-session inspect`, as a user sees it."""

from __future__ import annotations

import json

from expecttest import assert_expected_inline


def test_a_model(command, dense: str) -> None:
    outcome = command("inspect", dense)
    assert (outcome.code, outcome.err) == (0, "")
    assert_expected_inline(
        outcome.out,
        """\
dense.onnx
  IR version 10, opsets ai.onnx 17
  made by hand
inputs
  x  float32[batch, 3]
outputs
  y  float32[batch, 2]
weights
  1 tensor, 24 B
operators
  2 nodes
      1  Add
      1  MatMul
unsupported
  none
""",
    )


def test_nodes(command, dense: str) -> None:
    assert_expected_inline(
        command("inspect", dense, "--nodes").out,
        """\
dense.onnx
  IR version 10, opsets ai.onnx 17
  made by hand
inputs
  x  float32[batch, 3]
outputs
  y  float32[batch, 2]
weights
  1 tensor, 24 B
operators
  2 nodes
      1  Add
      1  MatMul
unsupported
  none
graph main(%x: float32[batch, 3]) -> (%y: float32[batch, 2]) {
  %w = weight float32[3, 2] (0, 1, 2, 3, 4, 5)
  %m = ai.onnx::MatMul(%x, %w)  # mm
  %y = ai.onnx::Add(%m, %m)  # twice
}
""",
    )


def test_unsupported_operators_are_listed_not_raised(command, odd: str) -> None:
    outcome = command("inspect", odd)
    assert outcome.code == 0
    assert_expected_inline(
        outcome.out,
        """\
odd.onnx
  IR version 10, opsets ai.onnx 17, acme 1
  made by hand
inputs
  x  float32[2]
outputs
  y  float32[2]
weights
  0 tensors, 0 B
operators
  2 nodes
      2  acme::Frobnicate
unsupported
  acme::Frobnicate  revision 1  no kernel  first, second
""",
    )


def test_json(command, odd: str) -> None:
    found = json.loads(command("inspect", odd, "--json").out)
    assert_expected_inline(
        "\n".join(f"{key}: {json.dumps(value)}".replace(": [{", ":\n[{") for key, value in found.items()),
        """\
model: "odd.onnx"
producer: "hand"
ir_version: 10
opsets: {"ai.onnx": 17, "acme": 1}
metadata: {}
inputs:
[{"name": "x", "type": "float32[2]"}]
outputs:
[{"name": "y", "type": "float32[2]"}]
weights: {"tensors": 0, "bytes": 0}
nodes: 2
nested_nodes: 0
ops:
[{"domain": "acme", "op": "Frobnicate", "count": 2}]
unsupported:
[{"op": "Frobnicate", "domain": "acme", "since": 1, "nodes": ["first", "second"], "reason": "no kernel"}]""",
    )


def test_what_is_no_model(command, folder) -> None:
    (folder / "text.onnx").write_text("hello")
    outcome = command("inspect", "text.onnx")
    assert outcome.code == 1
    assert outcome.err.startswith("torch-ort-session: error: ") and "Traceback" not in outcome.err
