"""Results: ordinary tensors in memory of their own, under names, in every mode of the caller."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from expecttest import assert_expected_inline
from textmodel import load, message, model, wrapped

import torch_ort_session as tos
from torch_ort_session.runtime.values.results import Outputs

X = np.arange(6, dtype=np.float32).reshape(2, 3)

ALIASES = {
    "the input itself": "g (float[2,3] x) => (float[2,3] x) { u = Neg(x) }",
    "identity": "g (float[2,3] x) => (float[2,3] y) { y = Identity(x) }",
    "reshape": "g (float[2,3] x) => (float[6] y) <int64[1] s = {-1}> { y = Reshape(x, s) }",
    "transpose": "g (float[2,3] x) => (float[3,2] y) { y = Transpose(x) }",
    "view of a view": (
        "g (float[2,3] x) => (float[3,2] y, float[1,2,3] z) <int64[1] a = {0}>"
        " { y = Transpose(x) z = Unsqueeze(x, a) }"
    ),
    "the weight itself": "g (float[2,3] x) => (float[2] w) <float[2] w = {1, 2}> { u = Neg(x) }",
    "view of a weight": (
        "g (float[2,3] x) => (float[1,2] y) <float[2] w = {1, 2}, int64[1] a = {0}> { y = Unsqueeze(w, a) }"
    ),
    "constant": "g (float[2,3] x) => (float[2] y) { y = Constant <value = float[2] {1, 2}> () }",
    "twice": "g (float[2,3] x) => (float[2,3] y, float[2,3] y) { y = Neg(x) }",
    "a value and its view": (
        "g (float[2,3] x) => (float[2,3] y, float[3,2] z) { y = Neg(x) z = Transpose(y) }"
    ),
    "two views of one value": (
        "g (float[2,3] x) => (float[2,1] y, float[2,2] z) <int64[2] s = {1, 2}>"
        " { n = Neg(x) y, z = Split <axis = 1> (n, s) }"
    ),
    "expanded": (
        "g (float[2,3] x) => (float[4,2,3] y) <int64[3] s = {4, 1, 1}> { n = Neg(x) y = Expand(n, s) }"
    ),
    "sequence of the input": (
        "g (float[2,3] x) => (seq(float[2,3]) y, float[2,3] z)"
        " { y = SequenceConstruct(x, x) z = Identity(x) }"
    ),
    "from a branch": (
        "g (float[2,3] x) => (float[2,3] y, float[2,3] z) <bool c = {1}> {"
        " y = If (c) <then_branch = t () => (float[2,3] a) { a = Identity(x) },"
        " else_branch = e () => (float[2,3] b) { b = Neg(x) }> z = Identity(x) }"
    ),
    "a loop without trips": (
        "g (float[2,3] x) => (float[2,3] y) <int64 n = {0}> {"
        " y = Loop (n, , x) <body = b (int64 i, bool c, float[2,3] s) => (bool d, float[2,3] o)"
        " { d = Identity(c) o = Neg(s) }> }"
    ),
}


def tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        else:
            yield from tensors(value)


@pytest.mark.parametrize("case", ALIASES)
@pytest.mark.parametrize("grad", [False, True], ids=["no grad", "grad"])
def test_results_have_memory_of_their_own(case: str, grad: bool) -> None:
    session = load(ALIASES[case])
    x = torch.from_numpy(X.copy()).requires_grad_(grad)
    results = list(tensors(session.run(None, {"x": x})))
    expected = [item.detach().clone() for item in results]
    for position, result in enumerate(results):
        assert result is not x
        with torch.no_grad():
            result.add_(1)  # refused by torch where elements share memory
        for other in range(position + 1, len(results)):
            assert torch.equal(results[other], expected[other])
    assert torch.equal(x, torch.from_numpy(X))
    again = list(tensors(session.run(None, {"x": x})))
    assert len(again) == len(expected)
    for result, want in zip(again, expected, strict=True):
        assert torch.equal(result, want)


def test_empty_results_are_tensors_of_their_own() -> None:
    session = load("g (float[n] x) => (float[n] y, float[n] z) { y = Identity(x) z = Identity(x) }")
    x = torch.empty(0)
    y, z = session(x)
    assert y is not x
    assert z is not x
    assert y is not z


def test_a_result_holds_no_more_memory_than_its_own() -> None:
    text = (
        "g (float[n] x) => (float[1] y) <int64[1] s = {5}, int64[1] e = {6}>"
        " { n = Neg(x) y = Slice(n, s, e) }"
    )
    y = load(text)(torch.arange(1000.0))
    assert y.tolist() == [-5]
    assert y.untyped_storage().nbytes() == 4


MODES: dict[str, Callable[[], Any]] = {
    "inference mode": torch.inference_mode,
    "no grad": torch.no_grad,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "default device": lambda: torch.device("meta"),
}


@pytest.mark.parametrize("mode", MODES)
def test_modes_of_the_caller(mode: str) -> None:
    text = (
        "g (float[2,3] x) => (float[2,2] y, float[2,3] z, float[2] r, float[2,3] m) <float[3,2] w>"
        " { y = MatMul(x, w) z = Identity(x) i = Constant <value_ints = [0, 1]> () r = Cast <to = 1> (i)"
        " a = ConstantOfShape <value = float[1] {2.0}> (s) m = Mul(x, a) }"
    )
    session = load(text, weights={"w": X.reshape(3, 2) / 7, "s": np.array([2, 3])})
    expected = session(X)
    session = load(text, weights={"w": X.reshape(3, 2) / 7, "s": np.array([2, 3])})
    with MODES[mode]():
        if mode != "default device":
            session = load(text, weights={"w": X.reshape(3, 2) / 7, "s": np.array([2, 3])})
        for feed in (X, X.tolist()):
            out = session(feed)
            for name in out.keys():  # noqa: SIM118
                assert type(out[name]) is torch.Tensor
                assert not out[name].is_inference()
                assert out[name].device.type == "cpu"
                assert out[name].dtype is torch.float32
                torch.testing.assert_close(out[name], expected[name], rtol=0, atol=0)
        assert torch.is_inference_mode_enabled() == (mode == "inference mode")
        assert torch.is_autocast_enabled("cpu") == (mode == "autocast")
    for result in out:
        result.requires_grad_().sum().backward()


def test_default_dtype() -> None:
    text = (
        "g (float[2,3] x) => (float[2,3] y, float n, float[3] r) {"
        " m = ReduceMean <keepdims = 0> (x) y = Sub(x, m) n = Constant <value_float = 0.5> ()"
        " i = Constant <value_float = 0.0> () l = Constant <value_float = 3.0> ()"
        " d = Constant <value_float = 1.0> () r = Range(i, l, d) }"
    )
    expected = load(text)(X)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        for feed in (X, X.tolist()):
            for result, want in zip(load(text)(feed), expected, strict=True):
                assert result.dtype is torch.float32
                torch.testing.assert_close(result, want, rtol=0, atol=0)
    finally:
        torch.set_default_dtype(before)


def test_an_inference_tensor_as_feed() -> None:
    with torch.inference_mode():
        x = torch.from_numpy(X.copy())
    for text in (ALIASES["identity"], ALIASES["transpose"], ALIASES["a value and its view"]):
        for result in tensors(load(text).run(None, {"x": x})):
            assert not result.is_inference()


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_are_set_for_the_run_alone(threads: int) -> None:
    before = torch.get_num_threads()
    session = tos.load(model(ALIASES["reshape"]), options=tos.Options(num_threads=threads))
    session(X)
    assert torch.get_num_threads() == before


def test_options_say_what_is_wrong() -> None:
    assert_expected_inline(
        message(ValueError, lambda: tos.Options(num_threads=0)), """num_threads must be at least 1, got 0"""
    )
    for value in ("2", 1.5, True):
        with pytest.raises(TypeError, match="num_threads must be an int, got"):
            tos.Options(num_threads=value)  # type: ignore[arg-type]
    assert_expected_inline(
        message(TypeError, lambda: tos.load(model(ALIASES["reshape"]), options={"capture": "off"})),  # type: ignore[arg-type]
        """options is a torch_ort_session.Options, not a dict""",
    )


def test_several_outputs() -> None:
    names = ("first", "second", "count", "index", "keys", "_low", "x.y")
    out = Outputs(names, [torch.tensor(i) for i in range(7)])
    first, *rest = out
    assert first is out[0] is out["first"] is out.first
    assert len(rest) == 6
    assert out[-1] is out["x.y"]
    assert out.second is out[1]
    assert [item.item() for item in out[2:4]] == [2, 3]
    assert out.keys() == names
    # Names that a tuple, or the class, has a method of are reached by index and by key.
    assert out["count"] is out[2]
    assert callable(out.count)
    assert out["index"] is out[3]
    assert out["keys"] is out[4]
    assert out["_low"] is out[5]
    assert dict(zip(out.keys(), out, strict=True))["second"] is out[1]
    assert_expected_inline(
        wrapped(repr(out)),
        """\
Outputs(first=tensor(0), second=tensor(1), count=tensor(2), index=tensor(3), keys=tensor(4),
_low=tensor(5), x.y=tensor(6))""",
    )
    assert_expected_inline(
        message(KeyError, lambda: out["nothing"]),
        """"no output 'nothing'; there are 'first', 'second', 'count', 'index', 'keys', '_low', 'x.y'\"""",
    )
    assert_expected_inline(
        message(AttributeError, lambda: out.nothing),
        """no output 'nothing'; there are 'first', 'second', 'count', 'index', 'keys', '_low', 'x.y'""",
    )


def test_outputs_travel() -> None:
    out = Outputs(["a", "b"], [torch.ones(2), (torch.zeros(1), None)])
    for other in (pickle.loads(pickle.dumps(out)), copy.copy(out), copy.deepcopy(out)):
        assert type(other) is Outputs
        assert other.keys() == ("a", "b")
        assert torch.equal(other.a, out.a)
    assert copy.deepcopy(out).a is not out.a


def test_one_output_comes_bare_and_several_together() -> None:
    assert isinstance(load(ALIASES["identity"])(X), torch.Tensor)
    out = load(ALIASES["two views of one value"])(X)
    assert isinstance(out, Outputs)
    assert out.keys() == ("y", "z")
    listed = load(ALIASES["identity"]).run(None, {"x": X})
    assert isinstance(listed, list)
