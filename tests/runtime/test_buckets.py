"""M2: many sizes of a dim share a few captures through padding, and results are those of unpadded runs."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from expecttest import assert_expected_inline
from pytape import PyTapes
from runtime.capturelab import counted, injected, same, states
from textmodel import message, model, wrapped

import torch_ort_session as tos
from benchmarks import fetch, recipes
from torch_ort_session import Bucket
from torch_ort_session.ops import native
from torch_ort_session.plan.partition.report import Reason
from torch_ort_session.runtime.recorders.tape.recorder import TapeRecorder

runner = import_module("torch_ort_session.runtime.engine.run")
WIDTH, WORDS = 8, 40
ATTENTION = (
    "g (int64[b, s] ids, int64[b, s] mask) => (float[b, s, 8] hidden, float[b, 8] pooled, int64[b, s] seen)"
    " <float one = {1}, float far = {-1e9}, int64[1] middle = {1}, int64[1] last = {2}> {"
    " x = Gather(table, ids) q = MatMul(x, wq) k = MatMul(x, wk) v = MatMul(x, wv)"
    " t = Transpose <perm = [0, 2, 1]> (k) score = MatMul(q, t) m = Cast <to = 1> (mask) n = Sub(one, m)"
    " f = Mul(n, far) row = Unsqueeze(f, middle) masked = Add(score, row) p = Softmax <axis = -1> (masked)"
    " o = MatMul(p, v) hidden = Add(x, o) column = Unsqueeze(m, last) w = Mul(hidden, column)"
    " sum = ReduceSum <keepdims = 0> (w, middle) count = ReduceSum <keepdims = 0> (column, middle)"
    " pooled = Div(sum, count) seen = Identity(ids) }"
)
SUM = (
    "g (float[b, s] x) => (float[b, s] y, float[b] total) <int64[1] a = {1}>"
    " { y = Exp(x) total = ReduceSum <keepdims = 0> (y, a) }"
)
LENGTHS = Bucket("s", (8, 32, 128), pad={"ids": 3}, mask="mask")


def attention() -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    shapes = {"table": (WORDS, WIDTH), **dict.fromkeys(("wq", "wk", "wv"), (WIDTH, WIDTH))}
    weights = {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}
    return model(ATTENTION, weights=weights)


def loaded(proto: onnx.ModelProto | str, **options: Any) -> tos.Session:
    """A session that captures, with the oracle in Python where the extension is not built."""
    proto = model(proto) if isinstance(proto, str) else proto
    session = tos.load(proto, options=tos.Options(**options))
    return session if native.status().usable else injected(session, lambda: TapeRecorder(PyTapes()))


def prompt(length: int, batch: int = 1, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed * 1000 + length)
    mask = torch.ones(batch, length, dtype=torch.int64)
    if batch > 1:
        mask[0, max(1, length // 2) :] = 0
    return {"ids": torch.randint(0, WORDS, (batch, length), generator=generator), "mask": mask}


def close(got: list[Any], want: list[Any], tolerance: float = 1e-5) -> None:
    for ours, theirs in zip(got, want, strict=True):
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance)


def test_m2_a_hundred_prompt_lengths_under_three_buckets_are_three_captures() -> None:
    session, eager = loaded(attention(), buckets=(LENGTHS,)), loaded(attention(), capture="off")
    for length in torch.randperm(100, generator=torch.Generator().manual_seed(7)).add(1).tolist():
        feed = prompt(length, 2)
        before = {name: value.clone() for name, value in feed.items()}
        close(session.run(None, feed), eager.run(None, feed))
        assert all(torch.equal(feed[name], value) for name, value in before.items())
    assert states(session) == ["captured"] * 3
    # Of the sizes, which need no padding, 8 and 32 are among the lengths.
    assert counted(session, "captures", "padded runs", "replays", "signatures") == (3, 98, 91, 3)


def test_m2_a_mask_that_is_left_out_is_made() -> None:
    session, eager = loaded(attention(), buckets=(LENGTHS,)), loaded(attention(), capture="off")
    for length in (5, 8, 31, 32, 7, 8, 32, 20, 128, 200):
        feed = prompt(length)
        want = eager.run(None, feed)
        close(session.run(None, {"ids": feed["ids"]}), want)
        close(list(session(feed["ids"].numpy())), want)
        close(list(session(ids=feed["ids"].tolist())), want)
    assert "mask" in message(tos.errors.InputError, lambda: eager.run(None, {"ids": feed["ids"]}))


def test_a_feed_that_does_not_tell_the_masks_size_is_what_is_refused() -> None:
    session = loaded(attention(), buckets=(LENGTHS,))
    for wrong in (torch.zeros(5, dtype=torch.int64), [[1, 2, 3], [4]]):
        told = message(tos.InputError, lambda wrong=wrong: session.run(None, {"ids": wrong}))
        assert told.startswith("input 'ids': got ")
    told = message(tos.InputError, lambda: session.run(None, {}))
    assert told == "required input(s) 'ids', 'mask' are missing; nothing was fed"


@pytest.mark.parametrize("mode", [torch.inference_mode, lambda: torch.device("meta"), torch.no_grad])
def test_masks_and_paddings_are_made_in_the_callers_modes(mode: Callable[[], Any]) -> None:
    session, eager = loaded(attention(), buckets=(LENGTHS,)), loaded(attention(), capture="off")
    feed = prompt(5)
    want = eager.run(None, feed)
    for _ in range(5):
        with mode():
            got = session.run(None, {"ids": feed["ids"]})
        assert not any(result.is_inference() for result in got)
        close(got, want)


def test_results_are_the_callers_own_and_hold_no_padding() -> None:
    session = loaded(attention(), buckets=(LENGTHS,))
    kept = []
    for length in (5, 6, 5, 7, 6, 5):
        for result in session.run(None, prompt(length)):
            assert result.untyped_storage().nbytes() == result.nbytes and result.is_contiguous()
            result.add_(1)
            kept.append((result, result.clone()))
    for result, then in kept:
        assert torch.equal(result, then)


def test_padded_bytes_are_counted() -> None:
    session = loaded(attention(), buckets=(LENGTHS,))
    session.run(None, prompt(5))
    assert counted(session, "bytes padded", "padded runs") == (2 * 3 * 8, 1)
    session.run(None, prompt(8))
    session.run(None, prompt(129))
    assert counted(session, "bytes padded", "padded runs") == (2 * 3 * 8, 1)


def test_an_empty_or_too_long_prompt_runs_as_it_comes() -> None:
    session, eager = loaded(SUM, buckets=(Bucket("s", (4,)),)), loaded(SUM, capture="off")
    for length in (0, 5, 4):
        feed = {"x": torch.randn(2, length)}
        same(session.run(None, feed), eager.run(None, feed))
    assert counted(session, "padded runs") == (0,)


def test_two_symbols_are_padded_together() -> None:
    buckets = (Bucket("b", (2, 4), mask="mask"), LENGTHS)
    session, eager = loaded(attention(), buckets=buckets), loaded(attention(), capture="off")
    for batch, length in ((1, 5), (2, 7), (3, 8), (3, 6), (4, 32), (1, 30), (2, 5)):
        close(session.run(None, prompt(length, batch)), eager.run(None, prompt(length, batch)))
    assert session.stats()["signatures"] == 3 + 1


def test_other_values_than_outputs_are_not_cut_so_that_runs_for_them_are_not_padded() -> None:
    session, eager = loaded(attention(), buckets=(LENGTHS,)), loaded(attention(), capture="off")
    for _ in range(4):
        close(session.run(["score", "pooled"], prompt(5)), eager.run(["score", "pooled"], prompt(5)))
        close(session.run(["pooled"], prompt(6)), eager.run(["pooled"], prompt(6)))
    assert counted(session, "padded runs") == (4,)


def test_feeds_that_grow_within_buckets_are_captured() -> None:
    session = loaded(attention(), buckets=(Bucket("s", (2, 4, 6, 8), mask="mask"),))
    for _ in range(3):
        for length in (1, 3, 5, 7):
            session.run(None, prompt(length))
    assert states(session) == ["captured"] * 4
    assert counted(session, "growing runs primed", "growing runs replayed") == (0, 0)


def test_grad_bindings_and_sessions_without_captures_are_never_padded() -> None:
    session = loaded(SUM, buckets=(Bucket("s", (4,)),))
    x = torch.randn(2, 3, requires_grad=True)
    session.run(None, {"x": x})[1].sum().backward()
    assert x.grad is not None and torch.allclose(x.grad, x.detach().exp())
    binding = session.bind()
    binding.input("x", x.detach())
    binding.run()
    assert binding.read("total").allclose(x.detach().exp().sum(1))
    off = loaded(SUM, buckets=(Bucket("s", (4,)),), capture="off")
    assert off.run(None, {"x": x.detach()})[1].allclose(x.detach().exp().sum(1))
    assert counted(session, "padded runs") == counted(off, "padded runs") == (0,)


def test_m2_a_whitelist_names_sizes_as_they_are_with_their_padding() -> None:
    session = loaded(attention(), buckets=(LENGTHS,), capture_only=({"s": 32},))
    for _ in range(4):
        for length in (5, 20, 8, 200):
            session.run(None, prompt(length))
    assert sorted(states(session)) == ["captured", "latched", "latched"]
    assert counted(session, "captures", "unlisted signatures") == (1, 2)


def test_the_plan_of_a_feed_is_that_of_its_padded_run() -> None:
    session = loaded(attention(), buckets=(LENGTHS,))
    # Of float32[1, 128, 128], the scores.
    assert "65.5 KB" in session.explain({"ids": prompt(40)["ids"]})
    assert session.explain() == "s is padded to 8, 32, 128"


def test_verify_compares_the_first_run_of_each_bucket_and_accepts_what_agrees() -> None:
    session, eager = loaded(attention(), buckets=(LENGTHS,), verify=True), loaded(attention(), capture="off")
    for _ in range(4):
        for length in (5, 6, 20, 8):
            close(session.run(None, prompt(length, 2)), eager.run(None, prompt(length, 2)))
    assert counted(session, "refused buckets", "padded runs", "captures") == (0, 12, 2)
    assert session.stats()["probes"] >= 2


def test_verify_refuses_a_bucket_whose_padding_changes_results() -> None:
    session, eager = loaded(SUM, buckets=(Bucket("s", (4, 6)),), verify=True), loaded(SUM, capture="off")
    for length in (3, 2, 5, 3, 3, 3, 4, 6):
        feed = {"x": torch.randn(1, length)}
        same(session.run(None, feed), eager.run(None, feed))
    assert counted(session, "refused buckets", "padded runs", "captures") == (2, 2, 1)
    assert [
        row.reason
        for report in session._engine.state.dispatcher.learnt.refused.values()
        for row in report.rows
    ] == [Reason.BUCKET] * 2
    feed = {"x": torch.zeros(1, 3)}
    other = loaded(SUM, buckets=(Bucket("s", (4,)),), verify=True)
    same(other.run(None, feed), eager.run(None, feed))
    assert_expected_inline(
        wrapped(other.explain()).partition("\n\n")[2],
        """\
s is padded to 4
not padded any more: s to 4
node   op  reason                   message
-----  --  -----------------------
-----------------------------------------------------------------------------------------------------------
(run)      padding changes results  a padded run differs from an unpadded one: 'total': the
numbers differ by up to 1, where 0.0003 is rounding""",
    )


def test_an_interrupted_comparison_refuses_no_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    session = loaded(attention(), buckets=(LENGTHS,), verify=True)
    feed = prompt(5)

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        # What the padded run is compared with.
        patch.setattr(runner, "run_eagerly", interrupted)
        session.run(None, feed)
    session.run(None, feed)
    assert counted(session, "refused buckets", "probe mismatches", "padded runs") == (0, 0, 2)


def test_without_verify_padding_is_the_callers_promise() -> None:
    session = loaded(SUM, buckets=(Bucket("s", (4,), pad={"x": float("-inf")}),))
    assert session.run(None, {"x": torch.zeros(1, 3)})[1].tolist() == [3.0]
    wrong = loaded(SUM, buckets=(Bucket("s", (4,)),))
    assert wrong.run(None, {"x": torch.zeros(1, 3)})[1].tolist() == [4.0]


def test_a_padded_run_that_fails_names_the_true_shapes() -> None:
    text = "g (float[s] x, float[s] w) => (float[s] y) <int64[1] a = {4}> { v = Expand(x, a) y = Mul(v, w) }"
    session = loaded(text, buckets=(Bucket("s", (8,)),))
    feed = {"x": torch.randn(4), "w": torch.randn(4)}
    told = message(tos.errors.KernelError, lambda: session.run(None, feed))
    assert told.splitlines()[-1] == "  padded: x [4] to [8]; w [4] to [8]"
    loaded(text).run(None, feed)


def test_bad_data_in_a_padded_run_names_the_true_shapes() -> None:
    text = "g (int64[s] i, float[6] table) => (float[s] y) { y = Gather(table, i) }"
    session = loaded(text, buckets=(Bucket("s", (4,), pad={"i": 9}),))
    feed = {"i": torch.arange(3), "table": torch.randn(6)}
    for _ in range(4):
        told = message(tos.errors.DeviceIndexError, lambda: session.run(None, feed))
        assert "index 9" in told and told.splitlines()[-1] == "  padded: i [3] to [4]"
    feed["i"] = torch.arange(4)
    same(session.run(None, feed), loaded(text, capture="off").run(None, feed))


def test_a_result_that_does_not_carry_the_padding_where_the_model_says_is_made_without() -> None:
    text = "g (float[s] x) => (float[s] y) { y = Concat <axis = 0> (x, x) }"
    session, eager = loaded(text, buckets=(Bucket("s", (4, 8)),)), loaded(text, capture="off")
    for length in (3, 3, 3, 3, 3, 4):
        feed = {"x": torch.randn(length)}
        same(session.run(None, feed), eager.run(None, feed))
    assert counted(session, "refused buckets", "padded runs", "captures") == (1, 1, 1)
    assert_expected_inline(
        wrapped(session.explain()).rpartition("\n\n")[2],
        """\
s is padded to 4, 8
not padded any more: s to 4
node   op  reason                   message
-----  --  -----------------------
-------------------------------------------------------------------------
(run)      padding changes results  'y' came out as [8], where dim 0 carries 's', which is 4
with its padding""",
    )


def test_dims_that_the_model_does_not_tell_are_told_by_the_caller() -> None:
    text = "g (float[s] x) => (float[?] y, float[?] z) { y = Exp(x) z = Slice(x, a, b) }"
    text = text.replace("{", "<int64[1] a = {0}, int64[1] b = {2}> {", 1)
    bucket = Bucket("s", (4,), results={"y": (0,), "z": ()})
    session, eager = loaded(text, buckets=(bucket,), verify=True), loaded(text, capture="off")
    for _ in range(4):
        feed = {"x": torch.randn(3)}
        same(session.run(None, feed), eager.run(None, feed))
    assert counted(session, "padded runs", "refused buckets") == (4, 0)


TWO = "g (float[s] x, float[k] w) => (float[s] y) { y = Exp(x) }"
IDS = "g (int64[s] ids) => (int64[s] y) { y = Neg(ids) }"
REFUSED: dict[str, tuple[str, Bucket]] = {
    "symbol": (SUM, Bucket("t", (4,))),
    "feed": (SUM, Bucket("s", (4,), pad={"z": 0})),
    "feed without it": (TWO, Bucket("s", (4,), pad={"w": 1})),
    "mask": (SUM, Bucket("s", (4,), mask="mask")),
    "mask without it": (TWO, Bucket("s", (4,), mask="w")),
    "result": (SUM, Bucket("s", (4,), results={"z": (0,)})),
    "rank of a result": (SUM, Bucket("s", (4,), results={"total": (1,)})),
    "unknown dim": ("g (float[s] x) => (float[?] y) { y = Exp(x) }", Bucket("s", (4,))),
    "sequence": ("g (float[s] x) => (seq(float[s]) y) { y = SequenceConstruct(x) }", Bucket("s", (4,))),
    "strings": ("g (string[s] x) => (string[s] y) { y = Identity(x) }", Bucket("s", (4,))),
    "half": (IDS, Bucket("s", (4,), pad={"ids": 0.5})),
    "negative": (
        IDS.replace("int64", "uint8").replace("Neg", "Identity"),
        Bucket("s", (4,), pad={"ids": -1}),
    ),
}


def test_buckets_that_do_not_fit_the_model_are_refused_at_load() -> None:
    told = {
        name: message(tos.errors.InputError, functools.partial(loaded, text, buckets=(bucket,)))
        for name, (text, bucket) in REFUSED.items()
    }
    assert_expected_inline(
        "\n".join(f"{name}: {text}" for name, text in told.items()),
        """\
symbol: buckets: no input has the symbolic dim 't' (there are: 'b', 's')
feed: buckets: the model has no input 'z' (there are: 'x')
feed without it: buckets: input w: float32[k] has no dim 's'
mask: buckets: the model has no input 'mask' (there are: 'x')
mask without it: buckets: input w: float32[k] has no dim 's'
result: buckets: the model has no output 'z' (there are: 'total', 'y')
rank of a result: buckets: output total: float32[b] has no dims [1]
unknown dim: buckets: the model does not tell which dims of output y: float32[?] carry 's'; say it with
results={'y': (...)}, () for none
sequence: buckets: the model does not tell which dims of output y: sequence(float32[s]) carry 's'; say it
with results={'y': (...)}, () for none
strings: buckets: input x: string[s] cannot be padded with 0: it holds no numbers
half: buckets: input ids: int64[s] cannot be padded with 0.5: torch.int64 has no 0.5
negative: buckets: input ids: uint8[s] cannot be padded with -1: torch.uint8 has no -1""",
    )


def test_a_dim_that_is_computed_from_the_symbol_is_told_by_the_caller() -> None:
    proto = model("g (float[s] x) => (float[t] y) { y = Concat <axis = 0> (x, x) }")
    proto.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "2*s"
    told = message(tos.errors.InputError, lambda: loaded(proto, buckets=(Bucket("s", (4,)),)))
    assert "y: float32[2*s] carry 's'" in told


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Bucket("", (1,)), "symbol is the name of a symbolic dim, got ''"),
        (lambda: Bucket("s", ()), "sizes of 's' must be positive and rise, got ()"),
        (lambda: Bucket("s", (4, 2)), "sizes of 's' must be positive and rise, got (4, 2)"),
        (lambda: Bucket("s", (4, 4)), "sizes of 's' must be positive and rise, got (4, 4)"),
        (lambda: Bucket("s", (0, 4)), "sizes of 's' must be positive and rise, got (0, 4)"),
        (lambda: Bucket("s", 4), "sizes of 's' must be a tuple of ints, got 4"),  # type: ignore[arg-type]
        (lambda: Bucket("s", (4,), pad={"x": "0"}), "the padding of 'x' must be a number, got '0'"),  # type: ignore[dict-item]
        (
            lambda: Bucket("s", (4,), pad={"x": 1}, mask="x"),
            "'x' is the mask: it is padded with 0, and has no padding of its own",
        ),
        (
            lambda: tos.Options(buckets=(Bucket("s", (4,)), Bucket("s", (8,)))),
            "'s' has two buckets; one holds all of its sizes",
        ),
        (
            lambda: tos.Options(buckets=({"s": 4},)),  # type: ignore[arg-type]
            "buckets holds torch_ort_session.Bucket records, got {'s': 4}",
        ),
    ],
)
def test_bad_buckets_are_refused(make: Any, told: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        make()
    assert str(caught.value) == told


def test_m24_a_trace_tells_how_a_run_was_padded() -> None:
    session = loaded(attention(), buckets=(LENGTHS,))
    with session.trace() as timeline:
        session.run(None, prompt(5))
        session.run(None, prompt(8))
    told = [span.facts.get("padded") for span in timeline.spans if span.kind == "run"]
    assert told == ["ids [1, 5] to [1, 8]; mask [1, 5] to [1, 8]", None]


def test_sessions_with_buckets_travel() -> None:
    session = pickle.loads(pickle.dumps(loaded(attention(), buckets=(LENGTHS,))))
    session.run(None, prompt(5))
    assert counted(session, "padded runs") == (1,)


@pytest.mark.zoo
def test_m2_a_sentence_model_of_the_zoo_gives_what_it_gives_without_padding() -> None:
    entry: Mapping[str, Any] = next(m for m in fetch.read_zoo() if m["name"] == "minilm-int8")
    source = str(fetch.fetch(entry))
    (symbol,) = {port.shape[1] for port in tos.load(source).inputs if port.shape is not None}
    bucket = Bucket(str(symbol), (16, 32, 64), mask="attention_mask")
    eager = tos.load(source, options=tos.Options(capture="off", num_threads=1))
    session = tos.load(source, options=tos.Options(buckets=(bucket,), num_threads=1))
    worst = 0.0
    for seed, length in enumerate((11, 30, 50, 9, 21, 63, 16, 32, 64, 12, 27, 41)):
        arrays = recipes.feeds(entry, {"batch": 2, "length": length}, seed)
        want = eager.run(None, arrays)
        left_out = {name: value for name, value in arrays.items() if name != "attention_mask"}
        for feed in (arrays, left_out if bool(arrays["attention_mask"].all()) else arrays):
            for ours, theirs in zip(session.run(None, feed), want, strict=True):
                assert ours.shape == theirs.shape
                worst = max(worst, float((ours - theirs).abs().max() / theirs.abs().max()))
    # The model quantises whole tensors, their padding included, to 8 bits.
    assert worst < 2e-2
    assert counted(session, "captures", "signatures") == (3, 3)
