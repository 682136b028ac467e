"""The native strip: ATen calls on a run's own tensors, with sizes that follow from how much it has grown."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tapelab import needs_extension

from torch_ort_session.runtime.recorders.devices import strips_for

pytestmark = needs_extension


def strip(given: int) -> Any:
    make = strips_for(torch.device("cpu"))
    assert make is not None
    return make(given)


def test_a_strip_makes_its_calls_on_what_it_is_given() -> None:
    one = strip(2)
    one.add("aten::cat", "", [None, 1], [(0, True, [0, 1])], [], [2], [])
    one.add("aten::neg", "", [None], [(0, False, [2])], [], [3], [])
    one.finish([3, 2])
    for n in (1, 4, 2):
        a, b = torch.randn(2, n), torch.randn(2, 3)
        negated, joined = one.run([a, b], 0)
        assert torch.equal(joined, torch.cat([a, b], 1)) and torch.equal(negated, -joined)
    assert len(one) == 2


def test_numbers_grow_alone_in_lists_and_for_tensors() -> None:
    one = strip(1)
    one.add("aten::expand", "", [None, None, False], [(0, False, [0])], [(1, 1, [2, 3], [0, 2])], [1], [])
    one.add("aten::add", "Tensor", [None, None, 1], [(0, False, [1])], [(1, 0, [5], [1])], [2], [])
    one.add("aten::slice", "Tensor", [None, 1, 0, None, 1], [(0, False, [2])], [(3, 0, [1], [1])], [3], [])
    one.finish([2, 3])
    for by in range(4):
        added, cut = one.run([torch.zeros(2, 1, dtype=torch.int32)], by)
        assert added.dtype == torch.int32 and added.shape == (2, 3 + 2 * by) and added.eq(5 + by).all()
        assert cut.shape == (2, 1 + by)


def test_dims_that_are_not_as_expected_end_the_run() -> None:
    one = strip(1)
    one.add("aten::neg", "", [None], [(0, False, [0])], [], [1], [(1, [3, 2], [1, 0])])
    one.finish([1])
    assert isinstance(one.run([torch.zeros(4, 2)], 1), list)
    assert one.run([torch.zeros(3, 2)], 1) == 1
    assert one.run([torch.zeros(4, 3)], 1) == 1
    assert one.run([torch.zeros(4)], 1) == 1
    assert isinstance(one.run([torch.zeros(5, 2)], 2), list)


def test_a_call_that_fails_says_so_and_the_strip_runs_again() -> None:
    one = strip(2)
    one.add("aten::mm", "", [None, None], [(0, False, [0]), (1, False, [1])], [], [2], [])
    one.finish([2])
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        one.run([torch.zeros(2, 3), torch.zeros(2, 3)], 0)
    (made,) = one.run([torch.ones(2, 3), torch.ones(3, 2)], 0)
    assert made.eq(3).all()


def test_calls_in_place_and_results_that_are_lists() -> None:
    one = strip(1)
    one.add("aten::clone", "", [None, None], [(0, False, [0])], [], [1], [])
    one.add("aten::mul_", "Tensor", [None, 2.0], [(0, False, [1])], [], [-1], [])
    one.add("aten::split", "Tensor", [None, 1, 0], [(0, False, [1])], [], [2, 3], [])
    one.finish([1, 2, 3])
    x = torch.randn(2, 2)
    doubled, first, second = one.run([x], 0)
    assert (
        torch.equal(doubled, 2 * x) and torch.equal(first, doubled[:1]) and torch.equal(second, doubled[1:])
    )
    with pytest.raises(RuntimeError, match="gave more results"):
        one.run([torch.randn(3, 2)], 0)


def test_a_run_is_below_autograd_and_knows_nothing_of_modes() -> None:
    one = strip(1)
    one.add("aten::exp", "", [None], [(0, False, [0])], [], [1], [])
    one.finish([1])
    x = torch.randn(2, requires_grad=True)
    with torch.autocast("cpu"):
        (made,) = one.run([x], 0)
    assert not made.requires_grad and made.dtype == torch.float32


def test_what_nobody_reads_any_more_is_released() -> None:
    one = strip(1)
    one.add("aten::neg", "", [None], [(0, False, [0])], [], [1], [])
    one.add("aten::neg", "", [None], [(0, False, [1])], [], [2], [])
    one.finish([2])
    (made,) = one.run([torch.ones(3)], 0)
    assert made.eq(1).all() and torch._C._storage_Use_Count(made.untyped_storage()._cdata) <= 3


WRONG = {
    "too few arguments": (("aten::neg", "", [], [], [], [1], []), ValueError, "takes 1 arguments"),
    "a slot that is not made": (
        ("aten::neg", "", [None], [(0, False, [4])], [], [1], []),
        RuntimeError,
        "slot 4",
    ),
    "two tensors for one": (
        ("aten::neg", "", [None], [(0, False, [0, 0])], [], [1], []),
        RuntimeError,
        "tensors of no argument",
    ),
    "two numbers for one": (
        (
            "aten::slice",
            "Tensor",
            [None, 0, 0, None, 1],
            [(0, False, [0])],
            [(3, 0, [1, 2], [1, 1])],
            [1],
            [],
        ),
        RuntimeError,
        "one number is one",
    ),
    "a form of no slot": (
        ("aten::neg", "", [None], [(0, False, [0])], [], [1], [(7, [1], [1])]),
        RuntimeError,
        "a form of no slot",
    ),
    "no such op": (("aten::nothing", "", [], [], [], [], []), RuntimeError, "nothing"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_makes_no_sense_is_refused(name: str) -> None:
    arguments, kind, told = WRONG[name]
    with pytest.raises(kind, match=told):
        strip(1).add(*arguments)


def test_a_run_that_is_given_too_little_is_refused() -> None:
    one = strip(2)
    one.finish([])
    with pytest.raises(RuntimeError, match="given 2 tensors, not 1"):
        one.run([torch.zeros(1)], 0)
    with pytest.raises(RuntimeError, match="slot 5 is not made"):
        strip(1).finish([5])
