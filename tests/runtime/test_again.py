"""A run like the one before takes the shortcut; whatever differs takes the long way, and is right."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from runtime.capturelab import CHAIN, SEAMS, counted, pair, same, states
from textmodel import message
from torch.utils._python_dispatch import TorchDispatchMode

import torch_ort_session as tos
from torch_ort_session.runtime.engine import fast_path as again

TEXT = (
    "g (float[2,n] x, int64 k, bool b) => (float[2,n] y) { c = Cast <to = 1> (k) d = Cast <to = 1> (b)"
    " e = Mul(x, c) f = Add(e, d) y = Exp(f) }"
)


class Watched:
    """A session and an eager one; says whether the last run took the shortcut."""

    def __init__(self, text: str, patch: pytest.MonkeyPatch) -> None:
        self.session, self.eager = pair(text)
        self.long = 0
        perform = self.session._engine._run

        def noted(*args: Any) -> list[Any]:
            self.long += 1
            return perform(*args)

        patch.setattr(self.session._engine, "_run", noted)

    def short(self, feed: dict[str, Any], mode: Any = None) -> bool:
        before = self.long
        want = self.eager.run(None, feed)
        with nullcontext() if mode is None else mode:
            got = self.session.run(None, feed)
        same([value.detach() for value in got], [value.detach() for value in want])
        assert not any(value.is_inference() for value in got)
        return self.long == before


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    watched = Watched(TEXT, monkeypatch)
    for _ in range(5):
        watched.short(feed())
    yield watched


def feed(**changed: Any) -> dict[str, Any]:
    given = {"x": torch.randn(2, 2), "k": torch.tensor(3), "b": torch.tensor(True)}
    return {**given, **changed}


def test_the_second_replay_in_a_row_takes_the_shortcut(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(CHAIN, monkeypatch)
    taken = [watched.short({"x": torch.randn(3), "w": torch.randn(3)}) for _ in range(7)]
    assert taken == [False] * 4 + [True] * 3
    assert counted(watched.session, "replays", "captures", "bytes copied") == (4, 1, 4 * 24)


def test_plain_tensors_are_taken_by_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(TEXT, monkeypatch)
    for _ in range(5):
        watched.short(feed())
    monkeypatch.setattr(again, "_take", lambda *_: None)
    assert watched.short(feed()) and watched.short(feed(x=torch.randn(2, 2).t()))
    assert not watched.short(feed(x=np.ones((2, 2), np.float32)))


def in_inference_mode() -> torch.Tensor:
    with torch.inference_mode():
        return torch.randn(2, 2)


SHORT: dict[str, Callable[[], dict[str, Any]]] = {
    "tensors": feed,
    "transposed": lambda: feed(x=torch.randn(2, 2).t()),
    "expanded": lambda: feed(x=torch.randn(1, 2).expand(2, 2)),
    "arrays": lambda: feed(x=np.ones((2, 2), np.float32), k=np.array(2), b=np.array(False)),
    "an array that goes backwards": lambda: feed(x=np.arange(4, dtype=np.float32).reshape(2, 2)[::-1]),
    "a read-only array": lambda: feed(x=np.broadcast_to(np.float32(2), (2, 2))),
    "other names first": lambda: dict(reversed(feed().items())),
}
LONG: dict[str, Callable[[], dict[str, Any]]] = {
    "another shape": lambda: feed(x=torch.randn(2, 3)),
    "lazily negated": lambda: feed(x=torch.randn(2, 2, dtype=torch.complex64).conj().imag),
    "of inference mode": lambda: feed(x=in_inference_mode()),
    "numbers": lambda: feed(k=3, b=True),
    "lists": lambda: feed(x=[[1.0, 2.0], [3.0, 4.0]]),
    "another byte order": lambda: feed(x=np.ones((2, 2), ">f4")),
    "a parameter": lambda: feed(x=torch.nn.Parameter(torch.randn(2, 2))),
    "grad": lambda: feed(x=torch.randn(2, 2, requires_grad=True)),
}


@pytest.mark.parametrize("name", SHORT)
def test_feeds_that_take_it(watched: Watched, name: str) -> None:
    assert watched.short(SHORT[name]())
    assert watched.short(feed())


@pytest.mark.parametrize("name", LONG)
def test_feeds_that_take_the_long_way(watched: Watched, name: str) -> None:
    assert not watched.short(LONG[name]())
    for _ in range(3):
        watched.short(feed())
    assert watched.short(feed())


WRONG: dict[str, Callable[[], dict[str, Any]]] = {
    "dtype": lambda: feed(x=torch.randn(2, 2).double()),
    "array dtype": lambda: feed(x=np.ones((2, 2))),
    "sparse": lambda: feed(x=torch.eye(2).to_sparse()),
    "nested": lambda: feed(x=torch.nested.nested_tensor([torch.randn(2)] * 2)),
    "rank": lambda: feed(x=torch.randn(2)),
    "meta": lambda: feed(x=torch.empty(2, 2, device="meta")),
    "missing": lambda: {"x": torch.randn(2, 2), "k": torch.tensor(1)},
    "unknown": lambda: feed(z=torch.zeros(1)),
    "renamed": lambda: {"z": torch.randn(2, 2), "k": torch.tensor(1), "b": torch.tensor(True)},
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("name", WRONG)
def test_wrong_feeds_are_refused_as_ever(watched: Watched, name: str) -> None:
    given = WRONG[name]()
    with pytest.raises(tos.errors.InputError) as caught:
        watched.session.run(None, given)
    with pytest.raises(tos.errors.InputError) as expected:
        watched.eager.run(None, given)
    assert str(caught.value) == str(expected.value)
    assert watched.short(feed())


class See(TorchDispatchMode):
    calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        See.calls += 1
        return func(*args, **(kwargs or {}))


def test_modes_that_have_to_see_every_call_do(watched: Watched) -> None:
    See.calls = 0
    assert not watched.short(feed(), See())
    assert See.calls >= 5
    assert not watched.short(feed(), torch.inference_mode())


@pytest.mark.parametrize("mode", [torch.no_grad, lambda: torch.autocast("cpu"), lambda: torch.device("meta")])
def test_modes_that_change_nothing(watched: Watched, mode: Callable[[], Any]) -> None:
    given = feed()
    assert watched.short(given, mode())


def test_other_outputs_take_the_long_way(watched: Watched) -> None:
    given = feed()
    want = watched.eager.run(["f", "y"], given)
    before = watched.long
    same(watched.session.run(["f", "y"], given), want)
    assert watched.long == before + 1


def test_a_key_of_another_value_takes_the_long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "g (float[n] x, int64 k) => (float[m] y) <int64[1] a = {0}>"
        " { r = Unsqueeze(k, a) e = Exp(x) y = Tile(e, r) }"
    )
    watched = Watched(text, monkeypatch)
    for k in (2, 2, 2, 2, 2):
        watched.short({"x": torch.randn(3), "k": torch.tensor(k)})
    key = torch.tensor(2)
    assert watched.short({"x": torch.randn(3), "k": key})
    key.fill_(3)
    assert not watched.short({"x": torch.randn(3), "k": key})
    for k in (4, 5, 6, 2, 2, 3, 3, 2):
        watched.short({"x": torch.randn(3), "k": torch.tensor(k)})


def test_release_and_eviction_end_it(watched: Watched) -> None:
    watched.session.release_memory()
    assert not watched.short(feed())
    assert states(watched.session) == ["cold"]
    assert watched.session.stats()["static input bytes"] == 0


def test_there_is_none_with_seams_with_verify_or_with_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, options in ((SEAMS, {}), (CHAIN, {"verify": True})):
        session, _ = pair(text, **options)
        for _ in range(8):
            session.run(None, {"x": torch.rand(3) + 1, "w": torch.rand(3) + 1})
        assert states(session) == ["captured"] and session._engine.fast is None
    session, _ = pair(CHAIN, num_threads=1)
    threads = torch.get_num_threads()
    for _ in range(8):
        session.run(None, {"x": torch.randn(3), "w": torch.randn(3)})
        assert torch.get_num_threads() == threads


def test_a_recording_that_fails_on_the_shortcut_is_taken_care_of(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(CHAIN, monkeypatch)
    for _ in range(6):
        watched.short({"x": torch.randn(3), "w": torch.randn(3)})
    shortcut = watched.session._engine.fast
    assert shortcut is not None
    with monkeypatch.context() as patch:
        patch.setattr(type(shortcut.recording), "replay", failing)
        assert not watched.short({"x": torch.randn(3), "w": torch.randn(3)})
    assert states(watched.session) == ["cold"]
    for _ in range(4):
        watched.short({"x": torch.randn(3), "w": torch.randn(3)})
    assert watched.short({"x": torch.randn(3), "w": torch.randn(3)})
    assert counted(watched.session, "retirements", "latched signatures") == (1, 0)


def failing(*_: Any) -> None:
    raise RuntimeError("it was told to")


def test_bad_data_on_the_shortcut_is_told_and_the_shortcut_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "g (float[n] x, int64[k] i) => (float[k] y) { a = Exp(x) y = Gather(a, i) }"
    watched = Watched(text, monkeypatch)
    for _ in range(6):
        watched.short({"x": torch.randn(3), "i": torch.tensor([0, 2])})
    for _ in range(3):
        assert watched.short({"x": torch.randn(3), "i": torch.tensor([1, 0])})
        bad = {"x": torch.randn(3), "i": torch.tensor([0, 7])}
        told = [
            message(tos.errors.DeviceIndexError, functools.partial(session.run, None, bad))
            for session in (watched.session, watched.eager)
        ]
        assert told[0] == told[1] and "index 7" in told[0]
    assert states(watched.session) == ["captured"]


def test_a_recording_that_checks_nothing_leaves_the_word_alone_but_when_somebody_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = (
        "g (float[n, 2] x) => (float[n, 2] y) <int64[1] zero = {0}, int64[1] two = {2}> { s = Shape(x)"
        " n = Gather(s, zero) d = Concat <axis = 0> (n, two) e = Exp(x) r = Reshape(e, d)"
        " f = Gather(r, zero) y = Sub(r, f) }"
    )
    watched = Watched(text, monkeypatch)
    for _ in range(6):
        watched.short({"x": torch.randn(3, 2)})
    shortcut = watched.session._engine.fast
    assert shortcut is not None and not shortcut.checks
    word = watched.session._engine.validation
    before = word.generation
    assert watched.short({"x": torch.randn(3, 2)}) and word.generation == before
    ticket = word.begin()
    with pytest.raises(tos.errors.DeviceValidationError, match="not asked yet"):
        watched.session.run(None, {"x": torch.randn(3, 2)})
    assert word.read(ticket) is None
    assert watched.short({"x": torch.randn(3, 2)})


def test_results_of_the_shortcut_are_the_callers(watched: Watched) -> None:
    kept = []
    for _ in range(5):
        (y,) = watched.session.run(None, feed())
        y.add_(1)
        kept.append((y, y.clone()))
    for result, then in kept:
        assert torch.equal(result, then)
