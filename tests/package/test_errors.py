"""The error tree: what each error is caught as, the facts it keeps, and that it crosses processes."""

from __future__ import annotations

import copy
import pickle

import pytest
from expecttest import assert_expected_inline
from textmodel import wrapped

import torch_ort_session as tos
from torch_ort_session.errors import UnsupportedOp

ERRORS: list[tuple[tos.SessionError, type[Exception]]] = [
    (tos.ModelError("it is damaged", place="graph 'g' / node 'n'"), ValueError),
    (
        tos.UnsupportedOpError(
            [
                UnsupportedOp("A", "ai.onnx", 7, ("one",)),
                UnsupportedOp("B", "acme", 0, ("1", "2", "3", "4", "5"), "no such operator"),
            ]
        ),
        NotImplementedError,
    ),
    (
        tos.UnsupportedOpError([UnsupportedOp("A", "ai.onnx", 7, ("one",), "")], heading="no:", advice="so:"),
        NotImplementedError,
    ),
    (tos.InputError("x does not fit", name="x", got="float64", expected="float32"), ValueError),
    (
        tos.KernelError("no luck", node="n", op="ai.onnx::Add", inputs=["a: float32[2] cpu", "b: absent"]),
        RuntimeError,
    ),
    (tos.KernelError("no luck", node="n", op="ai.onnx::Add"), RuntimeError),
    (tos.PlanError("slots overlap"), RuntimeError),
    (tos.CaptureError("the shape of x changed"), RuntimeError),
    (tos.DeviceValidationError("bad", node="n", kind="kind", value=3), RuntimeError),
    (tos.DeviceIndexError("bad index", node="n", kind="index", value=3), IndexError),
]


@pytest.mark.parametrize(("error", "base"), ERRORS, ids=lambda value: type(value).__name__)
def test_kinds_and_travel(error: tos.SessionError, base: type[Exception]) -> None:
    assert isinstance(error, tos.SessionError)
    assert isinstance(error, base)
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(other) is type(error)
        assert str(other) == str(error)
        assert other.__dict__ == error.__dict__


def test_a_device_index_error_is_a_device_validation_error() -> None:
    assert issubclass(tos.DeviceIndexError, tos.DeviceValidationError)


def test_texts() -> None:
    assert_expected_inline(
        "\n".join(wrapped(str(error)) for error, _ in ERRORS),
        """\
graph 'g' / node 'n': it is damaged
the model uses 2 unsupported operator(s):
  ai.onnx::A revision 7 (no kernel): nodes 'one'
  acme::B revision 0 (no such operator): nodes '1', '2', '3' and 2 more
`torch-ort-session ops` lists what is supported.
no:
  ai.onnx::A revision 7: nodes 'one'
so:
x does not fit
node 'n' (ai.onnx::Add) failed: no luck
  inputs: a: float32[2] cpu; b: absent
node 'n' (ai.onnx::Add) failed: no luck
slots overlap
the shape of x changed
bad
bad index""",
    )
