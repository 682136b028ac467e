"""GroupQueryAttention: steps that one compiled op does, beside the plain ops that do the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from onnx import TensorProto, helper
from torch import Tensor

import torch_ort_session as tos
from torch_ort_session.ops import native

pytestmark = pytest.mark.skipif(not native.status().usable, reason=f"native ops: {native.status().reason}")

HEADS, GROUPS, SIZE, ROOM = 6, 2, 16, 9
NAMES = [
    *("q", "k", "v", "past_k", "past_v", "last", "total", "cos", "sin", "position", "bias", "sink"),
    *("k_scale", "v_scale", "q_norm", "k_norm", "counts"),
]
TYPES = {
    torch.float32: TensorProto.FLOAT,
    torch.float16: TensorProto.FLOAT16,
    torch.bfloat16: TensorProto.BFLOAT16,
    torch.int8: TensorProto.INT8,
    torch.uint8: TensorProto.UINT8,
    torch.int32: TensorProto.INT32,
}
TOLERANCE = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}


def session(feed: dict[str, Tensor], capture: Any, **attributes: Any) -> tos.Session:
    names = [name if name in feed else "" for name in NAMES]
    node = helper.make_node(
        "GroupQueryAttention",
        names,
        ["y", "present_k", "present_v"],
        domain="com.microsoft",
        num_heads=HEADS,
        kv_num_heads=GROUPS,
        **attributes,
    )
    infos = [helper.make_tensor_value_info(name, TYPES[feed[name].dtype], None) for name in feed]
    kinds = [TYPES[feed[name].dtype] for name in ("q", "past_k", "past_v")]
    results = [helper.make_tensor_value_info(n, t, None) for n, t in zip(node.output, kinds, strict=True)]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(
        helper.make_graph([node], "g", infos, results), opset_imports=opsets, ir_version=10
    )
    return tos.load(model, options=tos.Options(capture=capture))


def floats(seed: int, dtype: torch.dtype = torch.float32, length: int = 1) -> dict[str, Tensor]:
    """New rows of each of two samples behind numbers of rows that depend on the seed."""
    random = torch.Generator().manual_seed(seed)

    def made(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random).to(dtype)

    last = torch.tensor([ROOM - 1 - seed % 3, length - 1 + seed % (ROOM - length)])
    return {
        "q": made(2, length, HEADS * SIZE),
        "k": made(2, length, GROUPS * SIZE),
        "v": made(2, length, GROUPS * SIZE),
        "past_k": made(2, GROUPS, ROOM, SIZE),
        "past_v": made(2, GROUPS, ROOM, SIZE),
        "last": last.to(torch.int32),
        "total": torch.tensor(ROOM, dtype=torch.int32),
    }


def turning(seed: int, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Cosines and sines."""
    angles = torch.rand(40, SIZE // 2, generator=torch.Generator().manual_seed(seed)) * 6
    return {"cos": angles.cos().to(dtype), "sin": angles.sin().to(dtype)}


def norms(seed: int, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(seed)
    return {name: torch.randn(SIZE, generator=random).to(dtype) + 1 for name in ("q_norm", "k_norm")}


def assert_codes_agree(ours: Tensor, theirs: Tensor, *, exactly: bool) -> None:
    """Codes of bytes or of half of one; floats that are rounded in between may move some by one."""
    if ours.dtype is torch.uint8:
        ours, theirs = (torch.stack((part & 15, part >> 4)) for part in (ours, theirs))
    apart = (ours.int() - theirs.int()).abs()
    assert not apart.gt(0 if exactly else 1).any()


def assert_steps_agree(
    feeds: list[dict[str, Tensor]],
    asked: list[str],
    monkeypatch: pytest.MonkeyPatch,
    rows: Callable[[int], int] = lambda last: last + 1,
    **attributes: Any,
) -> None:
    """The compiled op does them, eagerly and in replays, as plain ops do; `rows` are those that count."""
    with monkeypatch.context() as patch:
        patch.setattr(native, "device_op", lambda *_: None)
        plain = session(feeds[0], "off", **attributes)
        wanted = [plain.run(None, feed) for feed in feeds]
    assert asked == []
    eager, captured = (session(feeds[0], capture, **attributes) for capture in ("off", "auto"))
    tolerance = TOLERANCE[feeds[0]["q"].dtype]
    for feed, (want_y, *want) in zip(feeds, wanted, strict=True):
        for one in (eager, captured):
            y, *got = one.run(None, feed)
            for b, last in enumerate(feed["last"].tolist()):
                count = int(feed["counts"][b]) if "counts" in feed else y.shape[1]
                torch.testing.assert_close(y[b, :count], want_y[b, :count], rtol=tolerance, atol=tolerance)
                for ours, theirs in zip(got, want, strict=True):
                    assert ours.dtype is theirs.dtype and ours.shape == theirs.shape
                    ours, theirs = ours[b, :, : rows(last)], theirs[b, :, : rows(last)]
                    if not ours.is_floating_point():
                        assert_codes_agree(ours, theirs, exactly=tolerance < 1e-4)
                        continue
                    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
    assert asked.count("gqa_decode") >= len(feeds)
    assert captured.stats()["replays"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"qk_norm_epsilon": 0.5, "do_rotary": 1},
        {"q_norm_epsilon": 0.3, "k_norm_epsilon": 2.0, "do_rotary": 1, "rotary_interleaved": 1},
    ],
)
def test_heads_are_normalized_within_the_step(
    attributes: dict[str, Any], dtype: torch.dtype, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    turned = turning(0, dtype) if "do_rotary" in attributes else {}
    feeds = [floats(seed, dtype) | turned | norms(seed, dtype) for seed in range(5)]
    assert_steps_agree(feeds, asked, monkeypatch, **attributes)


def resident(last: int, window: int) -> int:
    """How many rows of a cache of a window count, by the formula of onnxruntime's documentation."""
    total, step = last + 1, ROOM - window + 1
    return total if total <= ROOM else total - step * -(-(total - ROOM) // step)


@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("window", [1, 4, ROOM])
@pytest.mark.parametrize("options", [{}, {"do_rotary": 1, "softcap": 2.0}, {"bias": True}, {"counts": True}])
def test_caches_of_a_window_roll_within_the_step(
    options: dict[str, Any], window: int, length: int, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    attributes = {"sliding_window_cache": 1, "local_window_size": window}
    attributes |= {name: value for name, value in options.items() if name not in ("bias", "counts")}
    feeds = []
    for seed in range(6):
        feed = floats(seed, length=length) | {"total": torch.tensor(40, dtype=torch.int32)}
        feed["last"] = torch.tensor([4 + 5 * seed, 2 + 7 * seed], dtype=torch.int32)
        feed |= turning(seed) if "do_rotary" in options else {}
        if "bias" in options:
            feed["bias"] = torch.randn(1, HEADS, length, 40, generator=torch.Generator().manual_seed(seed))
        if "counts" in options:
            feed["counts"] = torch.tensor([seed % (length + 1), length], dtype=torch.int32)
        feeds.append(feed)
    assert_steps_agree(feeds, asked, monkeypatch, lambda last: resident(last, window), **attributes)


@pytest.mark.parametrize("attributes", [{}, {"do_rotary": 1}, {"local_window_size": 3}])
def test_chunks_are_padded_within_the_step(
    attributes: dict[str, Any], asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    feeds = []
    for seed in range(6):
        feed = floats(seed, length=4) | (turning(seed) if "do_rotary" in attributes else {})
        feed["counts"] = torch.tensor([seed % 5, (seed + 2) % 5], dtype=torch.int32)
        feeds.append(feed)
    assert_steps_agree(feeds, asked, monkeypatch, **attributes)


def test_padding_behind_the_last_angle_is_no_fault(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    feeds = []
    for seed in range(4):
        feed = floats(seed, length=4) | {name: part[:ROOM] for name, part in turning(seed).items()}
        feed |= {"last": torch.tensor([ROOM - 1, 3], dtype=torch.int32)}
        feeds.append(feed | {"counts": torch.tensor([1, 2], dtype=torch.int32)})
    assert_steps_agree(feeds, asked, monkeypatch, do_rotary=1)


@pytest.mark.parametrize("native_ops", [True, False])
@pytest.mark.parametrize(("count", "last"), [(5, 7), (-1, 7), (2, 0), (1, ROOM + 1), (1, -1)])
def test_a_count_that_cannot_be_is_told(
    count: int, last: int, native_ops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not native_ops:
        monkeypatch.setattr(native, "device_op", lambda *_: None)
    feed = floats(0, length=4) | {"total": torch.tensor(ROOM + 4, dtype=torch.int32)}
    good = feed | {"counts": torch.tensor([2, 4], dtype=torch.int32)}
    bad = good | {
        "counts": torch.tensor([count, 4], dtype=torch.int32),
        "last": torch.tensor([last, 5], dtype=torch.int32),
    }
    one = session(good, "auto")
    for _ in range(4):
        with pytest.raises(tos.DeviceValidationError):
            one.run(None, bad)
        assert one.run(None, good)[0].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", ["PER_TENSOR", "PER_CHANNEL"])
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("rolling", [0, 1])
def test_integers_are_read_and_written_within_the_step(
    rolling: int,
    bits: int,
    kind: str,
    dtype: torch.dtype,
    asked: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attributes = {"k_quant_type": kind, "v_quant_type": kind, "kv_cache_bit_width": bits, "do_rotary": 1}
    if rolling:
        attributes |= {"sliding_window_cache": 1, "local_window_size": 5}
    feeds = []
    for seed in range(5):
        random = torch.Generator().manual_seed(seed)
        feed = floats(seed, dtype) | turning(seed, dtype)
        shape = (1,) if kind == "PER_TENSOR" else (1, GROUPS, 1, SIZE)
        for part in "kv":
            feed[f"{part}_scale"] = torch.rand(shape, generator=random) * 0.02 + (0.01 if bits == 8 else 0.2)
            held = torch.randint(-128, 128, (2, GROUPS, ROOM, SIZE * bits // 8), generator=random)
            feed[f"past_{part}"] = held.to(torch.int8).view(torch.int8 if bits == 8 else torch.uint8)
        feeds.append({name: feed[name] for name in NAMES if name in feed})
    rows = (lambda last: resident(last, 5)) if rolling else (lambda last: last + 1)
    assert_steps_agree(feeds, asked, monkeypatch, rows, **attributes)


def test_what_no_kernel_reads_is_done_by_plain_ops(asked: list[str]) -> None:
    feed = floats(0) | {"k_scale": torch.ones(2, GROUPS, 1, SIZE), "v_scale": torch.ones(1)}
    feed |= {f"past_{part}": feed[f"past_{part}"].to(torch.int8) for part in "kv"}
    feed = {name: feed[name] for name in NAMES if name in feed}
    kinds = {"k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": 8}
    assert session(feed, "off", **kinds).run(None, feed)[0].isfinite().all()
    assert "gqa_decode" not in asked
