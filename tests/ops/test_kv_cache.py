"""GroupQueryAttention: what lies in a cache behind the rows that count is nobody's, and changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from onnx import TensorProto, helper

import torch_ort_session as tos

HEADS, GROUPS, SIZE, ROOM = 4, 2, 8, 6


def session(capture: Any, **attributes: Any) -> tos.Session:
    names = ["q", "k", "v", "past_k", "past_v", "seqlens", "total"]
    node = helper.make_node(
        "GroupQueryAttention",
        names,
        ["y", "present_k", "present_v"],
        domain="com.microsoft",
        num_heads=HEADS,
        kv_num_heads=GROUPS,
        **attributes,
    )
    kinds = [TensorProto.FLOAT] * 5 + [TensorProto.INT32] * 2
    infos = [helper.make_tensor_value_info(n, kind, None) for n, kind in zip(names, kinds, strict=True)]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in node.output]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "g", infos, results)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return tos.load(model, options=tos.Options(capture=capture))


def feed(rest: float, seed: int) -> dict[str, torch.Tensor]:
    """One new row behind 2 and 4 of 6; elsewhere the cache holds `rest`."""
    random = torch.Generator().manual_seed(seed)

    def made(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random)

    before = torch.tensor([2, 4])
    past = [made(2, GROUPS, ROOM, SIZE) for _ in range(2)]
    for cache in past:
        for row, count in enumerate(before):
            cache[row, :, count:] = rest
    return {
        "q": made(2, 1, HEADS * SIZE),
        "k": made(2, 1, GROUPS * SIZE),
        "v": made(2, 1, GROUPS * SIZE),
        "past_k": past[0],
        "past_v": past[1],
        "seqlens": before.to(torch.int32),
        "total": torch.tensor(5, dtype=torch.int32),
    }


ATTRIBUTES: dict[str, dict[str, Any]] = {
    "plain": {},
    "capped": {"softcap": 5.0},
    "window": {"local_window_size": 3},
    "smooth": {"smooth_softmax": 1},
    "window cache": {"sliding_window_cache": 1, "local_window_size": 4},
}


@pytest.mark.parametrize("capture", ["off", "auto"])
@pytest.mark.parametrize("rest", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ATTRIBUTES)
def test_what_is_no_number_behind_the_rows_that_count_changes_nothing(
    name: str, rest: float, capture: str
) -> None:
    one = session(capture, **ATTRIBUTES[name])
    for seed in range(5):
        y, present_k, _ = one.run(None, feed(rest, seed))
        want, _, _ = session("off", **ATTRIBUTES[name]).run(None, feed(0.0, seed))
        assert torch.equal(y, want)
        assert present_k[0, :, :3].isfinite().all() and present_k[1, :, :5].isfinite().all()


@pytest.mark.parametrize("capture", ["off", "auto"])
def test_caches_may_lie_in_any_order(capture: str) -> None:
    one = session(capture)
    for seed in range(4):
        given = feed(0.0, seed)
        turned = {n: given[n].transpose(2, 3).contiguous().transpose(2, 3) for n in ("past_k", "past_v")}
        made, want = one.run(None, given | turned), session("off").run(None, given)
        assert all(torch.equal(a, b) for a, b in zip(made, want, strict=True))
