"""What may be fed, and that it is read as it is meant whatever its layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from textmodel import load, model

import torch_ort_session as tos

GRID = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(scope="module")
def double() -> tos.Session:
    return load("g (float[a, b] x) => (float[a, b] y) { y = Add(x, x) }")


LAYOUTS: dict[str, Callable[[], Any]] = {
    "torch": lambda: torch.from_numpy(GRID.copy()),
    "torch transposed": lambda: torch.from_numpy(np.ascontiguousarray(GRID.T)).T,
    "torch strided": lambda: torch.from_numpy(np.repeat(np.repeat(GRID, 2, 0), 3, 1))[::2, ::3],
    "torch negated view": lambda: torch._neg_view(torch.from_numpy(-GRID)),
    "numpy": lambda: GRID.copy(),
    "numpy transposed": lambda: np.ascontiguousarray(GRID.T).T,
    "numpy reversed": lambda: np.ascontiguousarray(GRID[::-1, ::-1])[::-1, ::-1],
    "numpy strided": lambda: np.repeat(GRID, 2, 1)[:, ::2],
    "numpy read-only": lambda: np.frombuffer(GRID.tobytes(), np.float32).reshape(3, 4),
    "numpy broadcast": lambda: np.broadcast_to(GRID, (3, 4)),
    "numpy big-endian": lambda: GRID.astype(">f4"),
    "numpy big-endian read-only": lambda: np.frombuffer(GRID.astype(">f4").tobytes(), ">f4").reshape(3, 4),
    "numpy unaligned": lambda: np.frombuffer(b"\0" + GRID.tobytes(), np.float32, 12, 1).reshape(3, 4),
    "numpy packed field": lambda: _packed_field(),
    "numpy matrix": lambda: GRID.view(np.matrix),
    "numpy masked": lambda: np.ma.array(GRID),
    "list": lambda: GRID.tolist(),
    "tuple of lists": lambda: tuple(GRID.tolist()),
    "list of integers": lambda: GRID.astype(int).tolist(),
    "list of arrays": lambda: list(GRID),
    "DLPack producer": lambda: _Producer(torch.from_numpy(GRID.copy())),
    "parameter": lambda: torch.nn.Parameter(torch.from_numpy(GRID.copy())),
    "subclass": lambda: torch.from_numpy(GRID.copy()).as_subclass(_Tagged),
}


class _Producer:
    """Holds memory that only DLPack gives out."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.tensor.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()


class _Tagged(torch.Tensor):
    """A subclass whose operations would give subclasses again."""


def _packed_field() -> np.ndarray[Any, Any]:
    records = np.zeros((3, 4), dtype=[("flag", "u1"), ("value", "<f4")])
    records["value"] = GRID
    return records["value"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(double: tos.Session, layout: str) -> None:
    feed = LAYOUTS[layout]()
    result = double(feed)
    assert type(result) is torch.Tensor
    torch.testing.assert_close(result.detach(), torch.from_numpy(GRID * 2), rtol=0, atol=0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_passed_straight_through(layout: str) -> None:
    result = load("g (float[a, b] x) => (float[a, b] y) { y = Identity(x) }")(LAYOUTS[layout]())
    assert type(result) is torch.Tensor
    torch.testing.assert_close(result.detach(), torch.from_numpy(GRID), rtol=0, atol=0)


SCALARS: list[tuple[str, Any, torch.Tensor]] = [
    ("float", 1.5, torch.tensor(3.0)),
    ("float", 2, torch.tensor(4.0)),
    ("float", True, torch.tensor(2.0)),
    ("float", np.float32(1.5), torch.tensor(3.0)),
    ("float", np.array(1.5, np.float32), torch.tensor(3.0)),
    ("float", torch.tensor(1.5), torch.tensor(3.0)),
    ("double", 0.1, torch.tensor(0.2, dtype=torch.float64)),
    ("float16", 1.5, torch.tensor(3.0, dtype=torch.float16)),
    ("int64", 2**40, torch.tensor(2**41)),
    ("int32", -3, torch.tensor(-6, dtype=torch.int32)),
    ("int32", np.int32(-3), torch.tensor(-6, dtype=torch.int32)),
    ("uint8", 3, torch.tensor(6, dtype=torch.uint8)),
]


@pytest.mark.parametrize(("kind", "value", "expected"), SCALARS)
def test_scalars(kind: str, value: Any, expected: torch.Tensor) -> None:
    result = load(f"g ({kind} x) => ({kind} y) {{ y = Add(x, x) }}")(value)
    torch.testing.assert_close(result, expected, rtol=0, atol=0)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0, 2)])
@pytest.mark.parametrize("make", [np.empty, lambda shape, dtype: torch.empty(shape)], ids=["numpy", "torch"])
def test_nothing_in_it(shape: tuple[int, ...], make: Callable[..., Any]) -> None:
    dims = ", ".join("abc"[: len(shape)])
    result = load(f"g (float[{dims}] x) => (float[{dims}] y) {{ y = Add(x, x) }}")(make(shape, np.float32))
    assert tuple(result.shape) == shape
    assert result.dtype is torch.float32


def test_empty_lists() -> None:
    session = load("g (int64[n] x) => (int64[n] y) { y = Add(x, x) }")
    torch.testing.assert_close(session([]), torch.empty(0, dtype=torch.int64))


NARROW = [
    ("bfloat16", ml_dtypes.bfloat16, torch.bfloat16),
    ("float8e4m3fn", ml_dtypes.float8_e4m3fn, torch.float8_e4m3fn),
    ("float8e4m3fnuz", ml_dtypes.float8_e4m3fnuz, torch.float8_e4m3fnuz),
    ("float8e5m2", ml_dtypes.float8_e5m2, torch.float8_e5m2),
    ("float8e5m2fnuz", ml_dtypes.float8_e5m2fnuz, torch.float8_e5m2fnuz),
    ("int4", ml_dtypes.int4, torch.int8),
    ("uint4", ml_dtypes.uint4, torch.uint8),
    ("float4e2m1", ml_dtypes.float4_e2m1fn, torch.float8_e4m3fn),
]


@pytest.mark.parametrize(("kind", "numpy_type", "carrier"), NARROW, ids=[row[0] for row in NARROW])
@pytest.mark.parametrize("layout", ["plain", "reversed", "transposed", "scalar", "empty"])
def test_types_that_numpy_lacks(kind: str, numpy_type: Any, carrier: torch.dtype, layout: str) -> None:
    values = np.array([[0, 1, 2], [3, 4, 6]], np.float32)
    if not kind.startswith("u"):
        values[0] *= -1
    array = values.astype(numpy_type)
    array = {
        "plain": array,
        "reversed": np.ascontiguousarray(array[::-1])[::-1],
        "transposed": np.ascontiguousarray(array.T).T,
        "scalar": array[1, 2],
        "empty": array[:0],
    }[layout]
    dims = ["", "[a]", "[a, b]"][np.ndim(array)]
    result = load(f"g ({kind}{dims} x) => ({kind}{dims} y) {{ y = Identity(x) }}", opset=23)(array)
    assert result.dtype is carrier
    np.testing.assert_array_equal(result.to(torch.float32).numpy(), np.asarray(array).astype(np.float32))


def test_bools_and_complex() -> None:
    flip = load("g (bool[n] x) => (bool[n] y) { y = Not(x) }")
    assert flip([True, False]).tolist() == [False, True]
    same = load("g (complex64[n] x) => (complex64[n] y) { y = Identity(x) }")
    conjugate = torch.tensor([1 + 2j]).conj()
    assert same(conjugate).tolist() == [1 - 2j]
    assert not same(conjugate).is_conj()


def test_strings() -> None:
    session = load("g (string[n] x, string[m] y) => (string[k] z) { z = Concat <axis = 0> (x, y) }")
    for x in (["a", "é"], ("a", "é"), np.array(["a", "é"]), np.array(["a", "é"], object)):
        result = session(x, np.array([b"b"]))
        assert isinstance(result, np.ndarray)
        assert result.dtype == object
        assert result.tolist() == ["a", "é", "b"]
    one = load("g (string x) => (string y) { y = Identity(x) }")
    assert one("word").tolist() == "word"


def test_sequences() -> None:
    session = load(
        "g (seq(float[n]) x) => (float[m] y, int64 n, seq(float[n]) z)"
        " { y = ConcatFromSequence <axis = 0> (x) n = SequenceLength(x) z = Identity(x) }"
    )
    out = session([torch.ones(2), np.zeros(3, np.float32), [2.0]])
    assert out.y.tolist() == [1, 1, 0, 0, 0, 2]
    assert out.n.tolist() == 3
    assert isinstance(out.z, tuple)
    assert [item.tolist() for item in out.z] == [[1, 1], [0, 0, 0], [2]]
    assert session.run(["z", "n"], {"x": ()})[0] == ()


OPTIONAL = "g (optional(float[n]) x) => (bool y) { y = OptionalHasElement(x) }"


def test_optionals() -> None:
    session = load(OPTIONAL)
    assert session(x=torch.ones(2)).item() is True
    assert session(x=None).item() is False
    assert session().item() is False
    passed = load("g (optional(float[n]) x) => (optional(float[n]) y) { y = Identity(x) }")
    assert passed(None) is None
    assert passed([1.0]).tolist() == [1.0]


def test_ways_to_call(double: tos.Session) -> None:
    x = torch.from_numpy(GRID)
    expected = x + x
    for result in (double(x), double(x=x), double({"x": x}), double.run(None, {"x": x})[0]):
        torch.testing.assert_close(result, expected, rtol=0, atol=0)
    two = load("g (float a, float b) => (float y) { y = Sub(a, b) }")
    for result in (two(3.0, 1.0), two(3.0, b=1.0), two(b=1.0, a=3.0), two({"b": 1.0, "a": 3.0})):
        assert result.item() == 2
    reserved = load("g (float self, float feed) => (float y) { y = Sub(self, feed) }")
    assert reserved(self=3.0, feed=1.0).item() == 2


def test_shapes_may_change_between_runs(double: tos.Session) -> None:
    for size in (3, 1, 0, 5):
        assert tuple(double(torch.ones(size, size)).shape) == (size, size)


def test_unknown_dims_and_rank() -> None:
    for kind in ("float[]", "float[?, ?]"):
        assert load(f"g ({kind} x) => (float[?, ?] y) {{ y = Add(x, x) }}")(GRID).shape == (3, 4)


def test_feeds_are_left_as_they_were(double: tos.Session) -> None:
    x = torch.from_numpy(GRID.copy())
    before, version = x.clone(), x._version
    double(x).fill_(9)
    assert torch.equal(x, before)
    assert x._version == version


def test_an_initializer_that_is_an_input_is_its_default() -> None:
    text = "g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {10, 20}> { y = Add(x, w) }"
    session = load(text, ir=3)
    assert [port.name for port in session.inputs] == ["x"]
    x = torch.ones(2)
    assert session(x).tolist() == [11, 21]
    assert session(x, w=[1.0, 2.0]).tolist() == [2, 3]
    assert session(x).tolist() == [11, 21]
    assert session.run(None, {"x": x, "w": torch.zeros(2)})[0].tolist() == [1, 1]


def test_a_default_that_decides_a_shape_can_be_overridden() -> None:
    text = "g (float[6] x, int64[2] s) => (float[a, b] y) <int64[2] s = {2, 3}> { y = Reshape(x, s) }"
    session = load(text, ir=3)
    assert tuple(session(torch.ones(6)).shape) == (2, 3)
    assert tuple(session(torch.ones(6), s=[3, 2]).shape) == (3, 2)
    assert tuple(session(torch.ones(6)).shape) == (2, 3)


@pytest.mark.parametrize("capture", ["off", "auto"])
def test_a_tensor_without_its_memory_is_refused(capture: Any) -> None:
    """torch itself reads the memory that was there, and the process ends."""
    made_of = model("g (float[a] x, float[a] w) => (float[a] y) { y = Add(x, w) }")
    session = tos.load(made_of, options=tos.Options(capture=capture))
    full = torch.ones(3)
    for made in (torch.ones(3), torch.nn.Parameter(torch.ones(3)), torch.ones(3, 3)[:, 1]):
        for _ in range(4):
            assert session.run(None, {"x": full, "w": made})[0].tolist() == [2.0] * 3
        made.untyped_storage().resize_(0)
        with pytest.raises(tos.InputError) as caught:
            session.run(None, {"x": full, "w": made})
        got, why = "a tensor whose memory was given back", "its storage was resized to 0"
        assert str(caught.value) == f"input 'w': got {got}, expected float32[a]; {why}"
        assert session.run(None, {"x": full, "w": full})[0].tolist() == [2.0] * 3
    nothing = torch.empty(0)
    nothing.untyped_storage().resize_(0)
    assert session.run(None, {"x": nothing, "w": torch.empty(0)})[0].shape == (0,)
