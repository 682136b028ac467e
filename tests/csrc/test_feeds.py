"""Feeds of a run that is like the one before, taken by compiled code (`csrc/tape/feeds.cpp`)."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torch_ort_session.ops import native
from torch_ort_session.runtime.recorders.devices import feeds_for
from torch_ort_session.runtime.recorders.tape.native import NativeFeeds

pytestmark = pytest.mark.skipif(not native.status().usable, reason=f"native ops: {native.status().reason}")

CPU = torch.device("cpu")


def no_feeds(threads: int | None = None) -> NativeFeeds:
    found = feeds_for(CPU, torch.get_num_threads() if threads is None else threads)
    assert found is not None, "the extension is not built"
    return found


def taking(*likes: torch.Tensor) -> tuple[NativeFeeds, list[torch.Tensor]]:
    """Feeds named a, b, ... like some tensors, and where they go."""
    feeds, targets = no_feeds(), [torch.full_like(like, 7).contiguous() for like in likes]
    for name, like, target in zip("abcdef", likes, targets, strict=False):
        feeds.add(name, like, target, None)
    return feeds, targets


@pytest.mark.parametrize(
    "value",
    [
        torch.arange(6.0).view(2, 3),
        torch.arange(6).view(3, 2).t(),
        torch.arange(6.0)[::2],
        torch.ones(1).expand(4),
        torch.tensor(True),
        torch.zeros(0, 3),
        torch.arange(100_000.0),
        torch.arange(40_000.0).view(200, 200).t(),
        torch.tensor([1.0 + 2.0j]),
        torch.ones(3, dtype=torch.bfloat16),
    ],
    ids=[
        "dense",
        "turned",
        "strided",
        "expanded",
        "scalar",
        "empty",
        "long",
        "long-turned",
        "complex",
        "bf16",
    ],
)
def test_a_feed_is_copied(value: torch.Tensor) -> None:
    feeds, (target,) = taking(value)
    assert feeds.take({"a": value})
    assert torch.equal(target, value)


def test_a_feed_that_nobody_reads_is_only_looked_at() -> None:
    feeds = no_feeds()
    feeds.add("a", torch.ones(2), None, None)
    assert feeds.take({"a": torch.ones(2)})
    assert not feeds.take({"a": torch.ones(3)})


def test_no_feeds_at_all() -> None:
    assert no_feeds().take({})
    assert not no_feeds().take({"a": torch.ones(1)})


class Sub(torch.Tensor):
    pass


def freed() -> torch.Tensor:
    value = torch.ones(2)
    value.untyped_storage().resize_(0)
    return value


def in_inference_mode() -> torch.Tensor:
    with torch.inference_mode():
        return torch.ones(2)


OTHERS: dict[str, Any] = {
    "dims": torch.ones(3),
    "rank": torch.ones(2, 1),
    "dtype": torch.ones(2, dtype=torch.float64),
    "gradient": torch.ones(2, requires_grad=True),
    "graph": torch.ones(2, requires_grad=True) * 2,
    "parameter": torch.nn.Parameter(torch.ones(2), requires_grad=False),
    "subclass": torch.ones(2).as_subclass(Sub),
    "meta": torch.ones(2, device="meta"),
    "sparse": torch.ones(2).to_sparse(),
    "negative view": torch._neg_view(torch.ones(2)),
    "freed": freed(),
    "inference": in_inference_mode(),
    "array": torch.ones(2).numpy(),
    "list": [1.0, 1.0],
    "none": None,
}


@pytest.mark.parametrize("what", OTHERS)
def test_another_feed_is_left_to_others_and_nothing_is_written(what: str) -> None:
    feeds, targets = taking(torch.ones(2), torch.ones(2))
    assert not feeds.take({"a": torch.zeros(2), "b": OTHERS[what]})
    assert [t.tolist() for t in targets] == [[7.0, 7.0], [7.0, 7.0]]
    assert feeds.take({"b": torch.zeros(2), "a": torch.ones(2)})
    assert [t.tolist() for t in targets] == [[1.0, 1.0], [0.0, 0.0]]


@pytest.mark.parametrize("feed", [{}, {"b": torch.ones(2)}, {"a": torch.ones(2), "b": torch.ones(2)}])
def test_other_names_are_left_to_others(feed: dict[str, torch.Tensor]) -> None:
    assert not taking(torch.ones(2))[0].take(feed)


def test_a_mapping_that_is_no_dict_is_left_to_others() -> None:
    assert not taking(torch.ones(2))[0].take(types.MappingProxyType({"a": torch.ones(2)}))


def test_a_name_that_cannot_be_compared_is_an_error() -> None:
    class Name(str):
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            raise ZeroDivisionError

    feeds, _ = taking(torch.ones(2))
    with pytest.raises(ZeroDivisionError):
        feeds.take({Name("a"): torch.ones(2)})


class Watching(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_modes_of_the_caller_are_left_to_others() -> None:
    feeds, _ = taking(torch.ones(2))
    feed = {"a": torch.ones(2)}
    taken: list[bool] = []
    with torch.inference_mode():
        taken.append(feeds.take(feed))
    with Watching():
        taken.append(feeds.take(feed))

    def transformed(value: torch.Tensor) -> torch.Tensor:
        taken.append(feeds.take(feed))
        return value

    torch.func.vmap(transformed)(torch.ones(2))
    assert taken == [False, False, False]
    with torch.no_grad():
        assert feeds.take(feed)


def test_other_threads_are_left_to_others() -> None:
    assert not no_feeds(torch.get_num_threads() + 1).take({})


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.bool])
def test_a_number_must_be_the_same(dtype: torch.dtype) -> None:
    feeds = no_feeds()
    feeds.add("a", torch.tensor(1, dtype=dtype), None, 1)
    assert feeds.take({"a": torch.tensor(1, dtype=dtype)})
    assert not feeds.take({"a": torch.tensor(0, dtype=dtype)})


def test_a_negative_number() -> None:
    feeds = no_feeds()
    feeds.add("a", torch.tensor([-3]), None, -3)
    assert feeds.take({"a": torch.tensor([-3])})
    assert not feeds.take({"a": torch.tensor([3])})


@pytest.mark.parametrize("like", [torch.tensor(1.0), torch.tensor([1, 2]), torch.tensor(1, dtype=torch.int8)])
def test_what_holds_no_number_is_refused(like: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="a: a number is one int64, int32 or bool"):
        no_feeds().add("a", like, None, 1)


@pytest.mark.parametrize("target", [torch.ones(3), torch.ones(2, dtype=torch.float64)])
def test_a_target_of_another_form_is_refused(target: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="a: its target has another form"):
        no_feeds().add("a", torch.ones(2), target, None)
