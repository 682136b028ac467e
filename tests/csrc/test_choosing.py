"""The native NonMaxSuppression, trees and TopK: as torch sees them, and beside plain ops that do the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from textmodel import message

from torch_ort_session.ops import native
from torch_ort_session.ops.ml.trees.forest import (
    MODES,
    Forest,
    Nodes,
    Votes,
    plant,
    votes_of,
)
from torch_ort_session.ops.onnx.nms import non_max_suppression
from torch_ort_session.ops.onnx.topk import top_k

pytestmark = pytest.mark.skipif(not native.status().usable, reason=f"native ops: {native.status().reason}")

NAN, INF = float("nan"), float("inf")


def op(name: str) -> Callable[..., Any]:
    found = native.cpu_op(name)
    assert found is not None
    return found


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], Any]:
    """What something gives without the extension."""

    def run(made: Callable[[], Any]) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(native, "cpu_op", lambda *_, **__: None)
            return made()

    return run


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", range(40))
def test_nms_chooses_what_plain_ops_choose(plain: Any, seed: int, dtype: torch.dtype) -> None:
    torch.manual_seed(seed)
    batch, classes, count = (int(torch.randint(1, high, ())) for high in (3, 4, 90))
    boxes = torch.randint(0, 8, (batch, count, 4)) if seed % 2 else torch.rand(batch, count, 4)
    scores = torch.randint(0, 6, (batch, classes, count)) / 6 if seed % 3 else torch.rand(1, 1, count)
    boxes, scores = boxes.to(dtype), scores.expand(batch, classes, count).to(dtype).clone()
    if seed % 4 == 0:
        boxes[0, 0, 1], boxes[-1, -1, 0], scores[0, 0, 0], scores[-1, -1, -1] = NAN, INF, NAN, INF
    limit, overlap, least = [1, 3, 1000][seed % 3], [0.0, 0.3, 1.0][seed // 3 % 3], [None, 0.2][seed // 9 % 2]

    def choose() -> torch.Tensor:
        return non_max_suppression(boxes, scores, limit, overlap, least, center_point_box=int(seed % 5 == 0))

    got, want = choose(), plain(choose)
    assert torch.equal(got, want) and got.dtype is torch.int64


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8])
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize(
    ("shape", "axis"), [((5,), 0), ((3, 7), 1), ((7, 3), 0), ((2, 9, 4), -2), ((2, 0, 3), 2), ((1200, 2), 0)]
)
def test_top_k_finds_what_plain_ops_find(
    plain: Any, dtype: torch.dtype, largest: int, shape: tuple[int, ...], axis: int
) -> None:
    torch.manual_seed(0)
    x = torch.randint(0, 6, shape).to(dtype)
    if dtype.is_floating_point and x.numel():
        x.view(-1)[::4], x.view(-1)[1::5], x.view(-1)[2::6] = NAN, INF, -0.0
    for given in (x, x.transpose(0, -1).contiguous().transpose(0, -1)):
        for k in (0, 1, shape[axis] // 2, shape[axis]):
            got, want = (
                run(lambda k=k, given=given: top_k(given, k, axis=axis, largest=largest))
                for run in (lambda made: made(), plain)
            )
            assert torch.equal(got[1], want[1])
            assert torch.equal(got[0].nan_to_num(9.0), want[0].nan_to_num(9.0))


def test_top_k_passes_gradients_on() -> None:
    x = torch.tensor([3.0, 1.0, 2.0], requires_grad=True)
    values, _ = top_k(x, 2)
    values.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [1.0, 0.0, 1.0]


def trees(dtype: torch.dtype, modes: list[str]) -> Forest:
    """Two trees over three features: a split of splits, and a leaf alone. One leaf votes twice, one never."""
    inner = [MODES.index(mode) for mode in modes]
    return plant(
        Nodes(
            modes=torch.tensor([*inner, *[MODES.index("LEAF")] * 5]),
            features=[0, 1, 2, 0, 0, 0, 0, 0],
            thresholds=torch.tensor([0.0, 0.5, -0.5, 0, 0, 0, 0, 0], dtype=dtype),
            true=[1, 3, 5, 3, 4, 5, 6, 7],
            false=[2, 4, 6, 3, 4, 5, 6, 7],
            missing_true=[1, 0, 1, 0, 0, 0, 0, 0],
        ),
        [0, 7],
        Votes([3, 3, 4, 5, 7], [0, 1, 1, 0, 0], torch.tensor([0.1, -2.0, NAN, 5.0, 0.7]), 3, "target_ids"),
    )


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("thresholds", [torch.float32, torch.float64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int64])
@pytest.mark.parametrize(
    "modes",
    [
        ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE"],
        ["BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"],
    ],
)
def test_votes_are_those_that_plain_ops_count(
    plain: Any, aggregate: str, thresholds: torch.dtype, dtype: torch.dtype, modes: list[str]
) -> None:
    torch.manual_seed(0)
    forest = trees(thresholds, modes)
    x = torch.randint(-2, 3, (60, 3)).to(dtype)
    if dtype.is_floating_point:
        x = x / 2
        x[::7, 0], x[::5, 1], x[::3, 2] = NAN, INF, NAN
    for rows in (x, x[:0], x.t().contiguous().t()):
        got = votes_of(forest, rows, aggregate)
        want = plain(lambda rows=rows: votes_of(forest, rows, aggregate))
        assert torch.equal(got[0].nan_to_num(99.0), want[0].nan_to_num(99.0))
        assert torch.equal(got[1], want[1])
        assert [t.dtype for t in got] == [t.dtype for t in want]


def test_what_does_not_fit_is_refused() -> None:
    forest = trees(torch.float32, ["BRANCH_LEQ"] * 3)
    x = torch.zeros(2, 3)
    given = [x, forest.roots, forest.thresholds, forest.table, forest.depth]
    given += [forest.vote_targets, forest.vote_weights, 3, 0]
    votes = op("forest_votes")
    assert "feature 1 of 1" in message(IndexError, lambda: votes(x[:, :1], *given[1:]))
    assert "node 99 of 8" in message(IndexError, lambda: votes(x, forest.roots + 99, *given[2:]))
    assert "deeper than 0 branches" in message(IndexError, lambda: votes(*given[:4], 0, *given[5:]))
    assert "for thresholds Float" in message(ValueError, lambda: votes(x.to(torch.float64), *given[1:]))
    assert "not a table" in message(ValueError, lambda: votes(*given[:3], forest.table[:, :4], *given[4:]))
    assert "4 entries" in message(ValueError, lambda: op("top_k")(x, 4, 1, True))
    choose = op("non_max_suppression")
    assert "do not fit" in message(
        ValueError, lambda: choose(torch.zeros(1, 3, 4), torch.zeros(1, 1, 2), 1, 0.5, None, False)
    )


@pytest.mark.parametrize("name", ["non_max_suppression", "forest_votes", "top_k"])
def test_torch_can_rely_on_its_schema(name: str) -> None:
    forest = trees(torch.float32, ["BRANCH_LEQ"] * 3)
    arguments: dict[str, tuple[Any, ...]] = {
        "non_max_suppression": (torch.rand(1, 9, 4), torch.rand(1, 2, 9), 3, 0.5, 0.1, False),
        "forest_votes": (
            torch.rand(4, 3),
            forest.roots,
            forest.thresholds,
            forest.table,
            forest.depth,
            forest.vote_targets,
            forest.vote_weights,
            forest.columns,
            0,
        ),
        "top_k": (torch.rand(4, 3), 2, 1, True),
    }
    results = torch.library.opcheck(op(name), arguments[name])
    assert set(results.values()) == {"SUCCESS"}
