"""What options, limits and buckets say to values of another type: when made, not in the first run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from expecttest import assert_expected_inline
from textmodel import load, message, model

from torch_ort_session import Bucket, InputError, Limits, Options
from torch_ort_session import load as load_model


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Options(verify="yes"), "verify must be True or False, got 'yes'"),
        (lambda: Options(verify=1), "verify must be True or False, got 1"),
        (lambda: Options(limits=5), "limits is a torch_ort_session.Limits record, got 5"),
        (lambda: Options(limits=None), "limits is a torch_ort_session.Limits record, got None"),
        (lambda: Limits(nodes="x"), "nodes must be an int, got 'x'"),
        (lambda: Limits(elements=1e9), "elements must be an int, got 1000000000.0"),
        (lambda: Limits(nesting=True), "nesting must be an int, got True"),
        (lambda: Limits(nodes=-1), "nodes must not be negative, got -1"),
        (lambda: Limits(hard_links=3), "hard_links must be True or False, got 3"),
        (lambda: Bucket("s", (4,), pad=5), "pad of 's' maps inputs to numbers, got 5"),
        (lambda: Bucket("s", (4,), pad=[("x", 0)]), "pad of 's' maps inputs to numbers, got [('x', 0)]"),
        (lambda: Bucket("s", (4,), pad={1: 0}), "pad of 's' names inputs by text, got 1"),
        (lambda: Bucket("s", (4,), mask=5), "mask of 's' is the name of an input, got 5"),
        (lambda: Bucket("s", (4,), results=5), "results of 's' maps outputs to dims, got 5"),
        (lambda: Bucket("s", (4,), results={1: (0,)}), "results of 's' names outputs by text, got 1"),
        (lambda: Bucket("s", (4,), results={"y": (0, 0)}), "dims of result 'y' are given twice: (0, 0)"),
    ],
)
def test_values_of_another_type_are_refused(make: Callable[[], Any], told: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        make()
    assert str(caught.value) == told


def test_limits_that_allow_nothing_are_limits() -> None:
    assert Limits(nodes=0).nodes == 0


def test_a_folder_of_weights_that_is_no_path_is_told_apart_from_the_model() -> None:
    proto = model("g (float[n] x) => (float[n] y) { y = Neg(x) }")
    assert_expected_inline(
        message(TypeError, lambda: load_model(proto, base_dir=5)),  # type: ignore[arg-type]
        """base_dir is the path of a folder, not int""",
    )


def test_a_whitelist_that_mixes_up_inputs_and_symbols_says_how_each_is_named() -> None:
    def refused(entry: dict[str, Any]) -> str:
        proto = model("g (float[n, 2] x) => (float[n, 2] y) { y = Neg(x) }")
        return message(InputError, lambda: load_model(proto, options=Options(capture_only=(entry,))))

    assert_expected_inline(
        refused({"x": 4}),
        """\
capture_only: 'x' is an input, float32[n, 2]: it is given all of its dims, as a tuple""",
    )
    assert_expected_inline(
        refused({"n": (4,)}),
        """\
capture_only: 'n' is a symbolic dim and is given one size, as an int; for several sizes write
several entries""",
    )


def test_a_plan_of_no_feed_is_refused_as_a_run_of_none_is() -> None:
    session = load("g (float[n] x) => (float[n] y) { y = Neg(x) }")
    for call in (lambda: session.plan(5), lambda: session.explain([1.0])):  # type: ignore[arg-type]
        assert message(InputError, call).startswith("feed is a mapping from input names to values, not a ")
