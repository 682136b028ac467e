"""GroupQueryAttention of com.microsoft: caches of every kind beside onnxruntime, where their rows count."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from opcase import OpCase, assert_matches, const, t

import torch_ort_session as tos
from differential.tallied import Compared

CASES = range(100)
"""Seeds of what is drawn."""
FEW = (*range(36), 38, 56, 82)
"""Those where not all are asked for: the last ones are the first of their kinds."""


def chance(rng: np.random.Generator, share: float = 0.5) -> bool:
    return bool(rng.random() < share)


def integers(data: Any) -> Any:
    return const(np.asarray(data), "int32")


def group_query(rng: np.random.Generator) -> OpCase:
    """Caches of floats or integers, of everything or of a window, growing or of a fixed size."""
    groups, size, batch = int(rng.integers(1, 3)), 16 * int(rng.integers(1, 3)), int(rng.integers(1, 3))
    heads, windowed = groups * int(rng.integers(1, 4)), chance(rng, 0.3)
    capacity, first, chunk = int(rng.integers(4, 9)), chance(rng, 0.3), False
    length = int(rng.integers(2, capacity + 1)) if first else 1
    before = np.zeros(batch, np.int64) if first else rng.integers(1, capacity, batch)
    if windowed and not first:
        before += int(rng.integers(0, 3 * capacity))
    count = np.full(batch, length)
    if not first and chance(rng):
        chunk, length = True, int(rng.integers(1, max(2, capacity - int(before.max()) + 1)))
        count = rng.integers(1, length + 1, batch)
        before = before if windowed else np.minimum(before, capacity - length)
    after = before + count
    total = int(after.max())
    attrs: dict[str, Any] = {"num_heads": heads, "kv_num_heads": groups}
    inputs: list[Any] = [t(batch, length, n * size) for n in (heads, groups, groups)]
    if chance(rng):
        inputs = [t(batch, length, (heads + 2 * groups) * size), None, None]
    # onnxruntime packs heads of a window's cache by 32.
    bits = int(rng.choice([0, 4, 4, 8] if size == 32 else [0, 8]))
    cache, scales = t(batch, groups, capacity, size), [None, None]
    if bits:
        cache = t(batch, groups, capacity, size * bits // 8, low=0, high=256, dtype="uint8")
        if bits == 8:
            cache = t(batch, groups, capacity, size, low=-128, high=128, dtype="int8")
        kind = str(rng.choice(["PER_TENSOR", "PER_CHANNEL"]))
        attrs |= {"k_quant_type": kind, "v_quant_type": kind, "kv_cache_bit_width": bits}
        shape = (1,) if kind == "PER_TENSOR" else (1, groups, 1, size)
        scales = [t(*shape, low=0.01, high=0.2, dtype="float32")] * 2
    inputs += [cache, cache, integers(after - 1), integers(max(total, length))]
    if chance(rng, 0.3):
        attrs |= {"do_rotary": 1, "rotary_interleaved": int(rng.integers(0, 2))}
        inputs += [t(40, size // 2), t(40, size // 2)]
    else:
        inputs += [None, None]
    biased = not chunk and not first and chance(rng, 0.3)
    inputs += [None, t(1, heads, length, total) if biased else None]
    inputs += [t(heads) if chance(rng, 0.2) else None, *scales, None, None]
    inputs += [integers(count)] if chunk else []
    if windowed:
        attrs |= {"sliding_window_cache": 1, "local_window_size": int(rng.integers(1, capacity + 1))}
    elif chance(rng, 0.3):
        attrs["local_window_size"] = int(rng.integers(1, 6))
    if chance(rng, 0.2):
        attrs["softcap"] = 1.5
    return OpCase(
        "GroupQueryAttention", inputs, attrs, domain="com.microsoft", outputs=3, oracle="onnxruntime"
    )


def resident(case: OpCase, total: int) -> int:
    """How many rows of a cache count after a step, by the formula of onnxruntime's documentation."""
    capacity = case.inputs[3].shape[2]  # type: ignore[union-attr]
    if not case.attrs.get("sliding_window_cache") or total <= capacity:
        return total
    step = capacity - int(case.attrs["local_window_size"]) + 1
    return total - step * -(-(total - capacity) // step)


def assert_counting_rows_match(
    case: OpCase, feeds: dict[str, Any], got: list[Any], wanted: list[Any]
) -> None:
    length = feeds["x0"].shape[1]
    for b, last in enumerate(feeds["x5"]):
        count = feeds["x16"][b] if "x16" in feeds else min(length, last + 1)
        assert_matches(got[0][b, :count], wanted[0][b, :count], 1e-4)
        rows = resident(case, int(last) + 1)
        for ours, theirs in zip(got[1:], wanted[1:], strict=True):
            assert_matches(ours[b, :, :rows], theirs[b, :, :rows], 1e-5)


def test_nodes_agree(compared: Compared, all_drawn: bool) -> None:
    replays, kinds, seeds = 0, set(), CASES if all_drawn else FEW
    for seed in seeds:
        case = group_query(np.random.default_rng(seed))
        model = case.model("float32", 1)
        session, ask = tos.load(copy.deepcopy(model)), case.ask("float32", 1)
        kinds.add(
            (
                case.attrs.get("sliding_window_cache", 0),
                case.attrs.get("kv_cache_bit_width", 0),
                len(case.inputs),
            )
        )
        for draw in (0, 1, 2, 3):
            feeds = case.feeds("float32", draw)
            wanted = ask(feeds)
            assert_counting_rows_match(case, feeds, session.run(None, feeds), wanted)
        compared.note(model)
        replays += session.stats()["replays"]
    assert len(kinds) == 12, "windows or not, three widths, padded chunks or not"
    assert replays >= len(seeds) // 2
