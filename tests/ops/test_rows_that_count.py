"""Attention to buffers: what lies in rows that do not count is nobody's, and changes no result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from onnx import TensorProto, helper
from torch import Tensor

import torch_ort_session as tos

HEADS, SIZE, ROOM, BATCH = 2, 8, 6, 2
KINDS = {torch.float32: TensorProto.FLOAT, torch.int32: TensorProto.INT32, torch.int64: TensorProto.INT64}
KINDS[torch.bool] = TensorProto.BOOL

Feed = list[Tensor | None]
Made = Callable[..., Tensor]


def run(op: str, domain: str, made: Feed, outputs: int, capture: Any, **attributes: Any) -> Sequence[Tensor]:
    names = ["" if value is None else f"x{place}" for place, value in enumerate(made)]
    feed = {name: value for name, value in zip(names, made, strict=True) if value is not None}
    ends = [f"y{place}" for place in range(outputs)]
    node = helper.make_node(op, names, ends, domain=domain, **attributes)
    infos = [helper.make_tensor_value_info(n, KINDS[value.dtype], None) for n, value in feed.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ends]
    opsets = [helper.make_opsetid("", 24), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "g", infos, results)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = tos.load(model, options=tos.Options(capture=capture))
    return [session.run(None, feed) for _ in range(3 if capture == "auto" else 1)][-1]


def cache(random: Made, rest: float, *counts: int, shape: tuple[int, ...] = (HEADS, ROOM, SIZE)) -> Tensor:
    """A buffer of so many rows that count in each sample, and of `rest`."""
    made = random(len(counts), *shape)
    for sample, count in enumerate(counts):
        made[sample, :, count:] = rest
    return made


def external(random: Made, rest: float, mask: str) -> Feed:
    """Keys and values of which 3 and 5 rows count."""
    masks = {
        "": None,
        "bools": torch.arange(ROOM).expand(2, ROOM) != 1,
        "numbers": random(2, ROOM),
    }
    query = random(BATCH, HEADS, 2, SIZE)
    buffers = [cache(random, rest, 3, 5) for _ in range(2)]
    return [query, *buffers, masks[mask], None, None, torch.tensor([3, 5])]


EXTERNAL: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"is_causal": 1},
    "capped": {"softcap": 5.0},
    "double": {"softmax_precision": TensorProto.DOUBLE},
    "scaled": {"scale": 0.3},
}


@pytest.mark.parametrize("capture", ["off", "auto"])
@pytest.mark.parametrize("rest", [float("nan"), float("inf")])
@pytest.mark.parametrize("mask", ["", "bools", "numbers"])
@pytest.mark.parametrize("name", EXTERNAL)
def test_attention_with_an_outside_cache(name: str, mask: str, rest: float, capture: str) -> None:
    found = []
    for fill in (rest, 0.0):
        random = torch.Generator().manual_seed(0)
        feed = external(lambda *shape, g=random: torch.randn(*shape, generator=g), fill, mask)
        found.append(run("Attention", "", feed, 1, capture, **EXTERNAL[name])[0])
    assert torch.equal(*found) and found[0].isfinite().all()


@pytest.mark.parametrize("mode", range(4))
def test_its_products_are_shown_as_they_are(mode: int) -> None:
    random = torch.Generator().manual_seed(0)
    feed = external(lambda *shape: torch.randn(*shape, generator=random), float("nan"), "")
    attributes = {"qk_matmul_output_mode": mode}
    y, _, _, products = run("Attention", "", feed, 4, "off", **attributes)
    assert y.isfinite().all()
    beyond = products[0, :, :, 3:]
    expected = {0: beyond.isnan(), 1: beyond.isnan(), 2: beyond == -torch.inf, 3: beyond == 0.0}[mode]
    assert expected.all() and products[0, :, :, :3].isfinite().all()


def buffered(random: Made, rest: float) -> Feed:
    """One new row behind two that count."""
    rows = [random(BATCH, 1, HEADS * SIZE) for _ in range(3)]
    buffers = [cache(random, rest, 2, 2) for _ in range(2)]
    return [*rows, None, None, *buffers, torch.tensor([2], dtype=torch.int32)]


def multi_head(random: Made, rest: float) -> Feed:
    query, key, value, *others, length = buffered(random, rest)
    return [query, key, value, None, *others, length]


def masked_self(random: Made, rest: float) -> Feed:
    width = HEADS * SIZE
    past = torch.stack([cache(random, rest, 2, 2) for _ in range(2)])
    # Keys lie in parts of 16 bytes, each with all rows.
    keys = past[0].reshape(BATCH, HEADS, ROOM, SIZE // 4, 4).transpose(2, 3).reshape(past[0].shape)
    rows = [random(BATCH, 1, width), random(width, 3 * width), random(3 * width)]
    length = torch.tensor([2], dtype=torch.int32)
    return [*rows, None, torch.stack([keys, past[1]]), None, length]


def paged(random: Made, rest: float) -> Feed:
    """Three new tokens behind 3 of one sequence and 1 of another, in blocks of 4 rows."""
    rows = [random(3, HEADS * SIZE) for _ in range(3)]
    caches = [random(5, 4, HEADS, SIZE) for _ in range(2)]
    for each in caches:
        each[4], each[0, 3], each[1], each[2, 1:], each[3] = rest, rest, rest, rest, rest
    numbers = [[0, 2, 3], [3, 1], [[0, 1], [2, 3]]]
    return [*rows, *caches, *(torch.tensor(each, dtype=torch.int32) for each in numbers)]


def sparse(random: Made, rest: float) -> Feed:
    rows = [random(BATCH, 1, HEADS * SIZE) for _ in range(3)]
    buffers = [cache(random, rest, 2, 4, shape=(HEADS, 16, SIZE)) for _ in range(2)]
    layout = [[[0, 1]], [[0]], 5, [3, 5]]
    return [*rows, *buffers, *(torch.tensor(each, dtype=torch.int32) for each in layout)]


CONTRIB: dict[str, tuple[Callable[[Made, float], Feed], int, dict[str, Any]]] = {
    "MultiHeadAttention": (multi_head, 3, {"num_heads": HEADS}),
    "DecoderMaskedMultiHeadAttention": (
        buffered,
        3,
        {"num_heads": HEADS, "past_present_share_buffer": 1},
    ),
    "DecoderMaskedSelfAttention": (masked_self, 2, {"num_heads": HEADS, "past_present_share_buffer": 1}),
    "PagedAttention": (paged, 3, {"num_heads": HEADS, "kv_num_heads": HEADS}),
    "SparseAttention": (
        sparse,
        3,
        {"num_heads": HEADS, "kv_num_heads": HEADS, "sparse_block_size": 16},
    ),
}


@pytest.mark.parametrize("capture", ["off", "auto"])
@pytest.mark.parametrize("rest", [float("nan"), float("inf")])
@pytest.mark.parametrize("op", CONTRIB)
def test_the_others(op: str, rest: float, capture: str) -> None:
    make, outputs, attributes = CONTRIB[op]
    found = []
    for fill in (rest, 0.0):
        random = torch.Generator().manual_seed(0)
        feed = make(lambda *shape, g=random: torch.randn(*shape, generator=g), fill)
        found.append(run(op, "com.microsoft", feed, outputs, capture, **attributes))
    assert torch.equal(found[0][0], found[1][0]) and found[0][0].isfinite().all()
    # The caches that come back hold what was there.
    assert not all(each.isfinite().all() for each in found[0][1:])
