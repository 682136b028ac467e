"""benchmarks/memory.py: what it measures is what was allocated, its bounds bite, its text."""

from __future__ import annotations

import re
from typing import Any

import memory
import pytest
import torch
from expecttest import assert_expected_inline
from tapelab import needs_extension
from textmodel import model, wrapped

MB = 1 << 20


def test_allocated_counts_the_most_at_once() -> None:
    kept: list[torch.Tensor] = []

    def call() -> None:
        a = torch.empty(MB, dtype=torch.uint8)
        b = torch.empty(2 * MB, dtype=torch.uint8)
        del a
        kept.append(torch.empty(MB // 2, dtype=torch.uint8))
        del b

    assert memory.allocated(call).nbytes == 3 * MB
    assert len(kept) == 1


def test_allocated_counts_what_is_returned_as_held() -> None:
    found = memory.allocated(lambda: (torch.empty(MB, dtype=torch.uint8), torch.empty(5)))
    assert found.nbytes == MB + 20


def test_allocated_names_the_op_whose_scratch_memory_is_there_at_the_peak() -> None:
    x = torch.rand(1, 64, 50, 50)
    w = torch.rand(3, 64, 3, 3)
    found = memory.allocated(lambda: torch.ops.aten._slow_conv2d_forward(x, w, [3, 3], None, [1, 1], [1, 1]))
    columns, result = 64 * 9 * 2500 * 4, 3 * 2500 * 4
    assert (found.op, found.scratch) == ("aten::_slow_conv2d_forward", columns)
    assert found.nbytes == columns + result


@needs_extension
def test_a_row_adds_up() -> None:
    text = "g (float[n] x) => (float[n] y) <int64 zero = {0}>"
    # Nothing here is fused: Atan has no code.
    text += " { a = Exp(x) b = CumSum(a, zero) c = Atan(b) y = Exp(c) }"
    size = 65536 * 4
    row = memory.measure("four nodes", model(text), {"x": torch.rand(65536)})
    assert row["captured"]
    # The static input counts beside the four results.
    assert (row["naive"], row["live"]) == (5 * size, 2 * size)
    # CumSum's result, which Atan writes over, in the place of the feed.
    assert (row["arena"], row["arena_over_bound"]) == (size, 1.0)
    # Exp's result, and then the run's in the same bytes; it is not copied.
    assert (row["outside"], row["replay"], row["static_inputs"]) == (size, size, 0)
    assert row["sum"] == 2 * size
    assert row["sum_over_live"] == 1.0
    assert row["eager"] == 2 * size
    assert (row["slotted"], row["given"], row["functional"]) == (0.6, 0.2, 0.0)


@needs_extension
def test_a_model_that_is_not_captured_is_a_miss() -> None:
    text = "g (float[n] x) => (int64[r, m] y) { y = NonZero(x) }"
    row = memory.measure("seam", model(text), {"x": torch.rand(8)})
    assert memory.judge([row]) == ["seam: not captured"]


def made(name: str, **changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "captured": True, "naive": 9e6, "eager": 4e6, "live": 3e6}
    row |= {"arena": 2e6, "outside": 1e6, "static_inputs": 0, "kept": 0, "scratch": 0.1e6}
    row |= {"replay": 1e6, "fresh": 0.8e6, "sum": 3e6, "slotted": 0.95, "functional": 0.05, "staying": 0.0}
    row |= {"given": 0.0, "scratch_of": "aten::mm"}
    row |= {"arena_over_bound": 1.0, "sum_over_live": 1.0, "sum_over_eager": 0.75}
    return {**row, **changes}


BAD = made("loose", arena_over_bound=1.2)
LARGE = made(
    "large", sum=5e6, sum_over_live=5 / 3, static_inputs=1e6, slotted=0.7, functional=0.25, staying=0.05
)


def test_bounds() -> None:
    assert memory.judge([made("good")]) == []
    assert memory.judge([made("small", live=1e4, sum=1.4e5, scratch=0)]) == []
    assert len(memory.judge([made("larger", live=1e4, sum=1.5e5, scratch=0)])) == 1
    assert memory.judge([made("scratch", sum=4e6, scratch=1e6, sum_over_live=4 / 3)]) == []
    assert len(memory.judge([made("more", sum=4e6, scratch=0.5e6, sum_over_live=4 / 3)])) == 1
    assert_expected_inline(
        wrapped("\n".join(memory.judge([BAD, LARGE]))),
        """\
loose: the arena is 1.20 x its bound, above 1.05
large: the sum is 1.67 x the live bytes, above 1.15: 25% is made anew by operators without an
out= form; 5% stays until the next replay; 1.000 MB copies of feeds; 0.800 MB results that are
given away or cannot be written into slots""",
    )


def test_text() -> None:
    assert_expected_inline(
        wrapped(memory.text_of([made("good"), LARGE])),
        """\
MB     naive  eager  live  arena  /bound  outside  scratch   sum  /live  /eager  slotted
-----  -----  -----  ----  -----  ------  -------  -------  ----  -----  ------  -------
good    9.00   4.00  3.00   2.00    1.00     1.00     0.10  3.00   1.00    0.75      95%
large   9.00   4.00  3.00   2.00    1.00     1.00     0.10  5.00   1.67    0.75      70%
large: 25% is made anew by operators without an out= form; 5% stays until the next replay; 1.000
MB copies of feeds; 0.800 MB results that are given away or cannot be written into slots""",
    )


@pytest.mark.zoo
def test_the_detector_is_within_its_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    assert memory.main(["--check", "--only", "rapidocr-v4-det"]) == 0
    assert re.search(r"^rapidocr-v4-det ", capsys.readouterr().out, re.MULTILINE)
