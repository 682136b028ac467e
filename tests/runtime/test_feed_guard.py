"""Feeds of every odd kind: both forms of the guard give one answer, and all who ask it are right."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from runtime.capturelab import counted, pair, same
from textmodel import model

import torch_ort_session as tos
from torch_ort_session.ops import native
from torch_ort_session.runtime.engine.fast_path import native_form
from torch_ort_session.runtime.values.feeds import FeedConverter, convert_all
from torch_ort_session.runtime.values.guards import (
    FeedGuard,
    ShapePattern,
    feed_guard,
    feed_row,
    guard_of,
    is_plain,
)

CPU = torch.device("cpu")
pytestmark = [
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor"),
]


class Sub(torch.Tensor):
    pass


def emptied() -> torch.Tensor:
    value = torch.rand(2, 3)
    value.untyped_storage().resize_(0)
    return value


def of_inference() -> torch.Tensor:
    with torch.inference_mode():
        return torch.rand(2, 3)


def read_only() -> np.ndarray[Any, Any]:
    array = np.ones((2, 3), np.float32)
    array.flags.writeable = False
    return array


# Of a feed that is a float32[2, 3]: what is fed, and whether it is taken as it is.
TENSORS: dict[str, tuple[Callable[[], Any], bool]] = {
    "dense": (lambda: torch.rand(2, 3), True),
    "turned": (lambda: torch.rand(3, 2).t(), True),
    "strided": (lambda: torch.rand(4, 3)[::2], True),
    "expanded": (lambda: torch.rand(1, 3).expand(2, 3), True),
    "offset": (lambda: torch.rand(3, 3)[1:], True),
    "channels": (lambda: torch.rand(2, 3, 1, 1).to(memory_format=torch.channels_last)[..., 0, 0], True),
    "detached": (lambda: torch.rand(2, 3, requires_grad=True).detach(), True),
    "dims": (lambda: torch.rand(3, 3), False),
    "rank": (lambda: torch.rand(2, 3, 1), False),
    "scalar": (lambda: torch.tensor(1.0), False),
    "no elements": (lambda: torch.rand(0, 3), False),
    "dtype": (lambda: torch.rand(2, 3, dtype=torch.float64), False),
    "complex": (lambda: torch.rand(2, 3, dtype=torch.complex64), False),
    "whole numbers": (lambda: torch.ones(2, 3, dtype=torch.int64), False),
    "quantized": (lambda: torch.quantize_per_tensor(torch.rand(2, 3), 0.1, 0, torch.quint8), False),
    "gradient": (lambda: torch.rand(2, 3, requires_grad=True), False),
    "graph": (lambda: torch.rand(2, 3, requires_grad=True) * 2, False),
    "parameter": (lambda: torch.nn.Parameter(torch.rand(2, 3)), False),
    "frozen parameter": (lambda: torch.nn.Parameter(torch.rand(2, 3), requires_grad=False), False),
    "subclass": (lambda: torch.rand(2, 3).as_subclass(Sub), False),
    "inference": (of_inference, False),
    "negated": (lambda: torch.rand(2, 3, dtype=torch.complex64).conj().imag, False),
    "meta": (lambda: torch.rand(2, 3, device="meta"), False),
    "sparse": (lambda: torch.rand(2, 3).to_sparse(), False),
    "sparse rows": (lambda: torch.eye(2, 3).to_sparse_coo().coalesce(), False),
    "nested": (lambda: torch.nested.nested_tensor([torch.rand(3)] * 2), False),
    "zero tensor": (lambda: torch._efficientzerotensor((2, 3)), False),
    "emptied": (emptied, False),
}
ARRAYS: dict[str, tuple[Callable[[], Any], bool]] = {
    "array": (lambda: np.ones((2, 3), np.float32), True),
    "turned array": (lambda: np.ones((3, 2), np.float32).T, True),
    "array backwards": (lambda: np.arange(6, dtype=np.float32).reshape(2, 3)[::-1], True),
    "read-only array": (read_only, True),
    "broadcast array": (lambda: np.broadcast_to(np.float32(2), (2, 3)), True),
    "array dtype": (lambda: np.ones((2, 3)), False),
    "byte order": (lambda: np.ones((2, 3), ">f4"), False),
    "array dims": (lambda: np.ones((2, 2), np.float32), False),
    "array scalar": (lambda: np.array(1, np.float32), False),
    "array subclass": (lambda: np.ma.masked_array(np.ones((2, 3), np.float32)), False),
    "text": (lambda: np.full((2, 3), "a", dtype=object), False),
}
OTHERS: dict[str, tuple[Callable[[], Any], bool]] = {
    "none": (lambda: None, False),
    "number": (lambda: 1.0, False),
    "list": (lambda: [[1.0] * 3] * 2, False),
    "tuple": (lambda: (torch.rand(2, 3),), False),
}
KINDS = {**TENSORS, **ARRAYS, **OTHERS}


def forms(*likes: torch.Tensor, numbers: Mapping[str, int] | None = None) -> tuple[FeedGuard, Any]:
    """Both forms of one guard, of feeds named a, b, ...; the compiled one copies nothing."""
    if not native.status().usable:
        pytest.skip(f"native ops: {native.status().reason}")
    named = list(zip("abcdef", likes, strict=False))
    guard = guard_of(named, numbers)
    compiled = native_form(guard, named, {})
    assert compiled is not None
    return guard, compiled


@pytest.mark.parametrize("kind", KINDS)
def test_both_forms_give_one_answer(kind: str) -> None:
    make, fits = KINDS[kind]
    guard, compiled = forms(torch.rand(2, 3))
    feed = {"a": make()}
    assert (guard.admit(feed) is not None) == fits
    # Arrays are seen by the one form, and what it says of them is what the other says of their elements.
    assert compiled.take(feed) == (fits and kind in TENSORS)
    if kind in ARRAYS and fits:
        assert compiled.take({"a": torch.from_numpy(np.array(feed["a"]))})


def test_both_forms_give_one_answer_on_any_two_feeds() -> None:
    guard, compiled = forms(torch.rand(2, 3), torch.rand(2, 3))
    made = {kind: (make(), fits) for kind, (make, fits) in {**TENSORS, **OTHERS}.items()}
    for one, other in itertools.product(made, repeat=2):
        feed = {"b": made[one][0], "a": made[other][0]}
        want = made[one][1] and made[other][1]
        assert (guard.admit(feed) is not None, compiled.take(feed)) == (want, want), (one, other)


DTYPES = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64),
    *(torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2),
)


def test_both_forms_tell_every_dtype_from_every_other() -> None:
    values = {dtype: torch.zeros(2).to(dtype) for dtype in DTYPES}
    for dtype, like in values.items():
        guard, compiled = forms(like)
        for other, value in values.items():
            answer = guard.admit({"a": value}) is not None, compiled.take({"a": value})
            assert answer == (other is dtype,) * 2, (dtype, other)


def test_arrays_of_every_dtype_are_what_torch_makes_of_them() -> None:
    for dtype in DTYPES:
        guard, _ = forms(torch.zeros(2).to(dtype))
        for other in DTYPES:
            try:
                array = torch.zeros(2).to(other).numpy()
            except TypeError:
                continue
            assert (guard.admit({"a": array}) is not None) == (other is dtype), (dtype, other)


def test_a_lazily_conjugated_feed_is_converted_first() -> None:
    guard, compiled = forms(torch.zeros(2, dtype=torch.complex64))
    plain, lazy = torch.rand(2, dtype=torch.complex64), torch.rand(2, dtype=torch.complex64).conj()
    assert guard.admit({"a": plain}) is not None and compiled.take({"a": plain})
    assert guard.admit({"a": lazy}) is None and not compiled.take({"a": lazy})


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.bool])
def test_a_key_feed_must_hold_its_number(dtype: torch.dtype) -> None:
    guard, compiled = forms(torch.tensor(1, dtype=dtype), numbers={"a": 1})
    for number in (0, 1):
        feed = {"a": torch.tensor(number, dtype=dtype)}
        assert (guard.admit(feed) is not None, compiled.take(feed)) == (number == 1,) * 2
        assert (guard.admit({"a": feed["a"].numpy()}) is not None) == (number == 1)


@pytest.mark.parametrize("feed", [{}, {"b": torch.rand(2)}, {"a": torch.rand(2), "b": torch.rand(2)}])
def test_other_names_are_other_feeds(feed: dict[str, torch.Tensor]) -> None:
    guard, compiled = forms(torch.rand(2))
    assert guard.admit(feed) is None and not compiled.take(feed)


def test_a_feed_that_a_transform_has_wrapped_is_not_plain() -> None:
    answers: list[bool] = []

    def look(value: torch.Tensor) -> torch.Tensor:
        answers.append(is_plain(value, value.dtype, value.device))
        return value

    torch.func.vmap(look)(torch.rand(2, 3))
    torch.func.grad(lambda value: look(value).sum())(torch.rand(3))
    assert answers == [False, False]


def test_dims_grow_by_their_slopes() -> None:
    patterns = ShapePattern((1, 4), (0, 1)), ShapePattern((8, 2), (2, 0)), ShapePattern((3,))
    rows = [feed_row(name, torch.float32, CPU, n) for n, name in enumerate("abc")]
    guard = feed_guard(rows, patterns)
    for by in (0, 1, 5):
        values = [torch.rand(1, 4 + by), torch.rand(8 + 2 * by, 2), torch.rand(3)]
        assert guard.fits(values, by)
        assert not guard.fits(values, by + 1)
        assert guard.fits(values[:2], by)
        assert not guard.fits([*values[:2], torch.rand(3 + by + 1)], by)
        assert not guard.fits([values[0], None, values[2]], by)


def test_what_nobody_reads_may_be_anything() -> None:
    guard = guard_of([("a", None), ("b", torch.rand(2))])
    assert guard.fits([None, torch.rand(2)]) and guard.fits(["text", torch.rand(2)])
    assert not guard.fits([torch.rand(2), torch.rand(3)])
    assert guard.admit({"a": torch.rand(2), "b": torch.rand(2)}) is None


# Those who ask: each is fed every kind after it has settled, and must do as eager runs do.

CHAIN = "g (float[n,3] x) => (float[n,3] y) { a = Exp(x) b = Neg(a) y = Tanh(b) }"
BODY = (
    "g (float[n,3] x, int64 k) => (float[n,3] y) <bool go = {1}> { y = Loop(k, go, x) <body = b"
    " (int64 i, bool c, float[n,3] s) => (bool d, float[n,3] r) { d = Identity(c) e = Exp(s) f = Neg(e)"
    " g = Tanh(f) h = Add(g, x) r = Mul(h, x) }> }"
)


def outcome(run: Callable[[dict[str, Any]], list[Any]], feed: dict[str, Any]) -> Any:
    try:
        return [value.detach() for value in run(feed)]
    except tos.errors.SessionError as error:
        return str(error)


def alike(got: Any, want: Any) -> None:
    if isinstance(want, str) or isinstance(got, str):
        assert got == want
    else:
        same(got, want)


@pytest.mark.parametrize("kind", KINDS)
def test_the_converter_and_the_slow_path_agree(kind: str) -> None:
    graph = tos.load(model(CHAIN)).graph
    converter = FeedConverter(graph.inputs, (), CPU)
    converter({"x": torch.rand(2, 3)})
    value = KINDS[kind][0]()
    got = outcome(lambda feed: list(converter(feed).values()), {"x": value})
    want = outcome(lambda feed: list(convert_all(graph.inputs, (), feed, CPU).values()), {"x": value})
    alike(got, want)


@pytest.mark.parametrize("kind", KINDS)
def test_the_fast_path_is_right(kind: str) -> None:
    session, eager = pair(CHAIN)
    for _ in range(6):
        session.run(None, {"x": torch.rand(2, 3)})
    assert session._engine.fast is not None
    feed = {"x": KINDS[kind][0]()}
    alike(outcome(lambda f: session.run(None, f), feed), outcome(lambda f: eager.run(None, f), feed))
    feed = {"x": torch.rand(2, 3)}
    alike(session.run(None, feed), eager.run(None, feed))


@pytest.mark.parametrize("kind", KINDS)
def test_bodies_are_right(kind: str) -> None:
    session, eager = pair(BODY)
    k = torch.tensor(6)
    for _ in range(6):
        session.run(None, {"x": torch.rand(2, 3), "k": k})
    assert counted(session, "body replays") > (0,)
    feed = {"x": KINDS[kind][0](), "k": k}
    alike(outcome(lambda f: session.run(None, f), feed), outcome(lambda f: eager.run(None, f), feed))


@pytest.mark.parametrize("kind", KINDS)
def test_growing_runs_are_right(kind: str) -> None:
    text = (
        "g (float[2,n] x, float[2,3] z) => (float[2,m] y) { a = Exp(z) b = Neg(a) c = Tanh(b)"
        " y = Concat <axis = 1> (x, c) }"
    )
    session, eager = pair(text)
    for n in range(1, 9):
        session.run(None, {"x": torch.rand(2, n), "z": torch.rand(2, 3)})
    assert counted(session, "growing runs replayed") > (0,)
    feed = {"x": torch.rand(2, 9), "z": KINDS[kind][0]()}
    alike(outcome(lambda f: session.run(None, f), feed), outcome(lambda f: eager.run(None, f), feed))
    feed = {"x": torch.rand(2, 10), "z": torch.rand(2, 3)}
    alike(session.run(None, feed), eager.run(None, feed))
