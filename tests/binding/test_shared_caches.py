"""Caches of GroupQueryAttention that are bound as past and present: only new rows are written."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from expecttest import assert_expected_inline
from onnx import TensorProto, helper
from runtime.capturelab import counted
from textmodel import message

import torch_ort_session as tos
from torch_ort_session.ops import native
from torch_ort_session.ops.microsoft.gqa.cache_rows import put_rows

LAYERS, HEADS, GROUPS, WIDTH, ROOM = 2, 4, 2, 8, 12
HIDDEN = HEADS * WIDTH
KINDS = {
    "float": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
}
BITS = {"int8": 8, "uint8": 4}


def decoder(
    kind: str = "float", extra: bool = False, masked: bool = False, counted: bool = False, **attributes: Any
) -> onnx.ModelProto:
    """Layers of attention.

    Args:
        kind: Of the caches.
        extra: Whether a cache is given as a further output as well.
        masked: Whether a mask tells the lengths, as models of onnxruntime-genai have it.
        counted: Whether chunks are padded, and how many of their rows count is fed.
        attributes: Of the attention.
    """
    floats = TensorProto.FLOAT16 if kind == "float16" else TensorProto.FLOAT
    random = np.random.default_rng(0)
    cache = ["batch", GROUPS, "room", WIDTH * BITS.get(kind, 8) // 8]
    weights, nodes = {}, []
    inputs = [
        helper.make_tensor_value_info("x", floats, ["batch", "length", HIDDEN]),
        helper.make_tensor_value_info("picked", TensorProto.INT64, [1]),
    ]
    weights["words"] = random.standard_normal((3, HIDDEN))
    if masked:
        inputs.append(helper.make_tensor_value_info("mask", TensorProto.INT64, ["batch", "total"]))
        nodes += [
            helper.make_node("ReduceSum", ["mask", "one"], ["count"], keepdims=0),
            helper.make_node("Sub", ["count", "one"], ["ends"]),
            helper.make_node("Cast", ["ends"], ["last"], to=TensorProto.INT32),
            helper.make_node("Shape", ["mask"], ["width"], start=1),
            helper.make_node("Squeeze", ["width"], ["most"]),
            helper.make_node("Cast", ["most"], ["total"], to=TensorProto.INT32),
        ]
    else:
        inputs.append(helper.make_tensor_value_info("last", TensorProto.INT32, ["batch"]))
        inputs.append(helper.make_tensor_value_info("total", TensorProto.INT32, []))
    if counted:
        inputs.append(helper.make_tensor_value_info("counts", TensorProto.INT32, ["batch"]))
    nodes.append(helper.make_node("Gather", ["words", "picked"], ["word"]))
    nodes.append(helper.make_node("Add", ["x", "word"], ["x0"]))
    outputs = []
    scales = ["scale", "scale"] if kind in BITS else []
    if scales:
        attributes |= {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR"}
        attributes["kv_cache_bit_width"] = BITS[kind]
        weights["scale"] = np.array([0.02 if kind == "int8" else 0.3])
    angles = np.outer(np.arange(5 * ROOM), 10.0 ** -np.arange(WIDTH // 2))
    weights |= {"cos": np.cos(angles), "sin": np.sin(angles)}
    for layer in range(LAYERS):
        weights[f"w{layer}"] = random.standard_normal((HIDDEN, (HEADS + 2 * GROUPS) * WIDTH)) / HIDDEN**0.5
        names = [f"past.{layer}.{part}" for part in "kv"]
        given = [name.replace("past", "present") for name in names]
        nodes.append(helper.make_node("MatMul", [f"x{layer}", f"w{layer}"], [f"qkv{layer}"]))
        nodes.append(
            helper.make_node(
                "GroupQueryAttention",
                [
                    f"qkv{layer}",
                    "",
                    "",
                    *names,
                    "last",
                    "total",
                    "cos",
                    "sin",
                    *([""] * 3 if scales or counted else []),
                    *(scales or [""] * 2 * counted),
                    *(["", "", "counts"] if counted else []),
                ],
                [f"y{layer}", *given],
                domain="com.microsoft",
                num_heads=HEADS,
                kv_num_heads=GROUPS,
                do_rotary=1,
                **attributes,
            )
        )
        nodes.append(helper.make_node("Add", [f"x{layer}", f"y{layer}"], [f"x{layer + 1}"]))
        inputs += [helper.make_tensor_value_info(name, KINDS[kind], cache) for name in names]
        outputs += [helper.make_tensor_value_info(name, KINDS[kind], cache) for name in given]
    outputs.append(helper.make_tensor_value_info(f"x{LAYERS}", floats, ["batch", "length", HIDDEN]))
    if extra:
        nodes.append(helper.make_node("Identity", ["present.0.k"], ["seen"]))
        outputs.append(helper.make_tensor_value_info("seen", KINDS[kind], cache))
    made = [onnx.numpy_helper.from_array(np.ones(1, np.int64), "one")]
    for name, value in weights.items():
        typed = value.astype(np.float16 if kind == "float16" else np.float32)
        made.append(onnx.numpy_helper.from_array(typed, name))
    graph = helper.make_graph(nodes, "g", inputs, outputs, made)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


class Bound:
    """Its caches bound, and the same model with caches fed and given."""

    def __init__(
        self, kind: str = "float", batch: int = 2, model: dict[str, Any] | None = None, **options: Any
    ) -> None:
        self.proto = decoder(kind, **(model or {}))
        self.window = (model or {}).get("local_window_size", 0)
        self.session = tos.load(self.proto, options=tos.Options(**options))
        self.plain = tos.load(self.proto, options=tos.Options(capture="off"))
        self.binding = self.session.bind()
        dtype = torch.float32 if kind == "float" else getattr(torch, kind)
        self.floats = torch.float32 if kind in BITS else dtype
        self.batch = batch
        self.caches = {
            f"past.{layer}.{part}": torch.zeros(
                batch, GROUPS, ROOM, WIDTH * BITS.get(kind, 8) // 8, dtype=dtype
            )
            for layer in range(LAYERS)
            for part in "kv"
        }
        self.fed = {name: cache.clone() for name, cache in self.caches.items()}
        for name, cache in self.caches.items():
            self.binding.state(name, name.replace("past", "present"), cache)
        self.random = torch.Generator().manual_seed(1)

    def feed(self, length: int, after: list[int], total: int = ROOM, picked: int = 0) -> dict[str, Any]:
        return {
            "x": torch.randn(self.batch, length, HIDDEN, generator=self.random).to(self.floats),
            "last": torch.tensor(after, dtype=torch.int32) - 1,
            "total": torch.tensor(total, dtype=torch.int32),
            "picked": torch.tensor([picked]),
        }

    def step(self, feed: dict[str, Any], run: Any = None) -> None:
        """The same by both; they must agree, in the caches too."""
        (run or self.binding.run)(feed)
        *given, y = self.plain.run(None, {**feed, **self.fed})
        self.fed = dict(zip(self.fed, given, strict=True))
        torch.testing.assert_close(self.binding.read(f"x{LAYERS}"), y)
        self.agree(feed["last"] + 1)

    def agree(self, after: torch.Tensor) -> None:
        for name, cache in self.caches.items():
            for b, rows in enumerate(after.tolist()):
                while self.window and rows > ROOM:
                    rows -= ROOM - self.window + 1
                assert torch.equal(cache[b, :, :rows], self.fed[name][b, :, :rows])


@pytest.mark.parametrize("capture", ["off", "auto"])
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_prompt_and_tokens_leave_what_copies_of_the_caches_would(kind: str, capture: str) -> None:
    one = Bound(kind, capture=capture)
    one.step(one.feed(4, [4, 2], total=4))
    for token in range(1, 7):
        one.step(one.feed(1, [4 + token, 2 + token]))
    if capture == "auto":
        assert counted(one.session, "replays")[0] >= 3
    one.step(one.feed(2, [12, 10]))


@pytest.mark.parametrize("capture", ["off", "auto"])
@pytest.mark.parametrize("window", [3, ROOM])
@pytest.mark.parametrize("kind", list(KINDS))
def test_caches_of_a_window_are_rolled_in_place(kind: str, window: int, capture: str) -> None:
    one = Bound(kind, model={"sliding_window_cache": 1, "local_window_size": window}, capture=capture)
    one.step(one.feed(4, [4, 2], total=4))
    for token in range(1, 30):
        one.step(one.feed(1, [4 + token, 2 + token], total=40))
    one.step(one.feed(3, [36, 34], total=40))
    one.step(one.feed(2 * ROOM, [36 + 2 * ROOM, 34 + 2 * ROOM], total=60))
    if capture == "auto":
        assert counted(one.session, "replays")[0] >= 20


@pytest.mark.parametrize("rolling", [False, True])
@pytest.mark.parametrize("kind", list(KINDS))
def test_padding_of_chunks_is_put_nowhere(kind: str, rolling: bool) -> None:
    model = {"sliding_window_cache": 1, "local_window_size": 4} if rolling else {}
    one = Bound(kind, model={"counted": True, **model})
    after = [0, 0]
    for count in ([4, 2], [0, 1], [3, 0], [1, 4], [2, 4], [0, 0]):
        after = [a + b for a, b in zip(after, count, strict=True)]
        one.step(one.feed(4, after) | {"counts": torch.tensor(count, dtype=torch.int32)})
    assert counted(one.session, "replays")[0] >= 3


def test_m12_bad_data_rolls_no_row() -> None:
    one = Bound(model={"sliding_window_cache": 1, "local_window_size": 3})
    for token in range(1, 16):
        one.step(one.feed(1, [token, token], total=40))
    before = {name: cache.clone() for name, cache in one.caches.items()}
    for bad in ({"picked": torch.tensor([99])}, {"last": torch.tensor([15, 40], dtype=torch.int32)}):
        with pytest.raises(tos.DeviceValidationError):
            one.binding.run({**one.feed(1, [16, 16], total=40), **bad})
        assert all(torch.equal(cache, before[name]) for name, cache in one.caches.items())
    one.step(one.feed(1, [16, 16], total=40))


def test_a_mask_that_grows_beside_caches_that_do_not() -> None:
    one = Bound(model={"masked": True})
    for total in range(1, ROOM + 1):
        given = one.feed(1, [total, max(1, total - 2)])
        mask = (torch.arange(total) <= given.pop("last")[:, None]).to(torch.int64)
        del given["total"]
        one.binding.run({**given, "mask": mask})
        *fed, y = one.plain.run(None, {**given, "mask": mask, **one.fed})
        one.fed = dict(zip(one.fed, fed, strict=True))
        torch.testing.assert_close(one.binding.read(f"x{LAYERS}"), y)
        one.agree(mask.sum(1))


def test_only_rows_are_delivered() -> None:
    one = Bound()
    before = counted(one.session, "bytes delivered")[0]
    one.binding.run(one.feed(1, [3, 5]))
    rows = sum(cache[:, :, 0].nbytes for cache in one.caches.values())
    assert counted(one.session, "bytes delivered")[0] - before == rows


def test_a_recorded_token_is_one_recording() -> None:
    one = Bound()
    assert one.binding.capture(one.feed(1, [1, 1])) is None
    one.fed = {name: cache.clone() for name, cache in one.caches.items()}
    for token in range(2, 6):
        one.step(one.feed(1, [token, token]), lambda feed: one.binding.replay(feed) or pytest.fail("retired"))
    one.binding.unbind("past.0.k")
    with pytest.raises(tos.CaptureError):
        one.binding.replay(one.feed(1, [6, 6]) | {"past.0.k": one.caches["past.0.k"]})


def test_verified_replays_are_compared_with_eager_runs() -> None:
    one = Bound(verify=True)
    for token in range(1, 7):
        one.step(one.feed(1, [token, token + 2]))
    assert counted(one.session, "probes", "probe mismatches") == (1, 0)


@pytest.mark.parametrize("validate", ["run", "deferred"])
@pytest.mark.parametrize(
    "bad", [{"picked": torch.tensor([99])}, {"last": torch.tensor([3, ROOM], dtype=torch.int32)}]
)
def test_m12_bad_data_changes_no_row(bad: dict[str, Any], validate: str) -> None:
    one = Bound(validate=validate)
    for token in range(1, 5):
        one.step(one.feed(1, [token, token]))
    before = {name: cache.clone() for name, cache in one.caches.items()}
    for _ in range(2):
        with pytest.raises(tos.DeviceValidationError):
            one.binding.run({**one.feed(1, [5, 5]), **bad})
            one.session.check()
        for _ in range(3):
            with contextlib.suppress(tos.DeviceValidationError):
                one.binding.snapshot()
        assert all(torch.equal(cache, before[name]) for name, cache in one.caches.items())
    one.step(one.feed(1, [5, 5]))


def test_m12_runs_together_write_no_row_behind_bad_data() -> None:
    one = Bound()
    for token in range(1, 5):
        one.step(one.feed(1, [token, token]))
    one.step(one.feed(1, [5, 5]))
    before = {name: cache.clone() for name, cache in one.caches.items()}
    with pytest.raises(tos.DeviceValidationError), one.binding.together():
        one.binding.run(one.feed(1, [6, 6], picked=50))
        one.binding.run(one.feed(1, [7, 7]))
    assert all(torch.equal(cache, before[name]) for name, cache in one.caches.items())


def test_a_length_beyond_the_cache_names_the_node_and_the_value() -> None:
    one = Bound()
    text = message(tos.DeviceIndexError, lambda: one.binding.run(one.feed(1, [3, ROOM + 1])))
    assert_expected_inline(
        text,
        """\
node 'GroupQueryAttention_3' (com.microsoft::GroupQueryAttention): position 12 is outside of [0,
12), the places that the cache has (2 positions are); check the lengths and positions that were
fed, or make the cache longer""",
    )


def test_a_step_for_which_there_is_no_room_is_refused() -> None:
    one = Bound()
    before = {name: cache.clone() for name, cache in one.caches.items()}
    with pytest.raises(tos.KernelError, match="13 rows in a cache that is bound with room for 12"):
        one.binding.run(one.feed(1, [3, 3], total=13))
    assert all(torch.equal(cache, before[name]) for name, cache in one.caches.items())


def test_a_cache_that_is_read_elsewhere_is_given_whole() -> None:
    session = tos.load(decoder(extra=True))
    one = Bound()
    binding, caches = session.bind(), {name: cache.clone() for name, cache in one.caches.items()}
    for name, cache in caches.items():
        binding.state(name, name.replace("past", "present"), cache)
    for token in range(1, 5):
        feed = one.feed(1, [token, token])
        one.binding.run(feed)
        binding.run(feed)
        assert torch.equal(binding.read("seen"), caches["past.0.k"])
    assert all(torch.equal(cache, one.caches[name]) for name, cache in caches.items())


def test_states_that_are_not_all_there_are_copied() -> None:
    one, two = Bound(), Bound()
    two.binding.unbind("past.1.v")
    extra = torch.zeros_like(two.caches["past.1.v"])
    for token in range(1, 5):
        feed = one.feed(1, [token, token])
        one.binding.run(feed)
        two.binding.run({**feed, "past.1.v": extra})
        extra = two.binding.read("present.1.v")
    two.caches["past.1.v"] = extra
    assert all(torch.equal(cache, two.caches[name]) for name, cache in one.caches.items())


def test_plain_ops_put_rows_as_the_native_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    random = torch.Generator().manual_seed(0)
    cache = torch.randn(3, 2, 9, 5, generator=random)
    fresh, word = torch.randn(3, 2, 2, 5, generator=random), torch.zeros(10, dtype=torch.int32)
    moving = [[7, 2, 2], [0, 9, 1], [-1, 0, 2]], [[8, 1, 1], [-9, 0, 2], [-1, 0, 0]]
    for start in ([0, 7, 3], [-1, 8, 9], *moving):
        held = [cache.clone(), cache.clone(), cache.clone()]
        put_rows(held[:1], [fresh], [torch.tensor(start)], word)
        with monkeypatch.context() as patch:
            patch.setattr(native, "device_op", lambda *_: None)
            put_rows(held[1:2], [fresh], [torch.tensor(start)], word)
            put_rows(held[2:], [fresh], [torch.tensor(start)], word + 1)
        assert torch.equal(held[0], held[1]) and torch.equal(held[2], cache)
        assert not torch.equal(held[0], cache)
