"""Constants that hang on shapes of landed values: they hold while those shapes stay, and no longer."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from expecttest import assert_expected_inline
from runtime.capturelab import agree, counted, entries, pair, reasons, regions, same, states, warmed

from torch_ort_session.plan.partition.report import Reason
from torch_ort_session.trace.observer import OP, SEAM, SEGMENT

LENGTHS = (
    "g (float[n] x, float[1] w) => (float[k, 2] y, float[?] v) <int64[1] two = {2}, int64[1] zero = {0},"
    " int64[1] m = {-1}> { a = Exp(w) z = NonZero(x) t = Transpose(z) s = Shape(t) k = Gather(s, zero)"
    " p = Concat <axis = 0> (k, two) e = Expand(a, p) c = ConstantOfShape(p) y = Add(e, c)"
    " q = Mul(k, two) r = Expand(w, q) b = Neg(r) v = Abs(b) }"
)
TWICE = (
    "g (float[n] x, float[n] w) => (float[?] y, float[?] u, int64[2] o) <int64[1] m = {-1}> { a = Exp(x)"
    " z = NonZero(x) f = Reshape(z, m) c = Gather(a, f) d = Neg(c) s = Shape(d) h = NonZero(w)"
    " g1 = Reshape(h, m) i = Gather(a, g1) t = Shape(i) o = Concat <axis = 0> (s, t) j = Abs(i)"
    " p = ReduceSum <keepdims = 1> (o) q = ReduceSum <keepdims = 1> (d) b = Expand(q, p) y = Sin(b)"
    " l = ReduceSum <keepdims = 1> (j) e = Expand(l, p) u = Cos(e) }"
)
TURNS = (
    "g (float[n] x, int64 k) => (float[?, ?] y, float[?] v) <int64[1] m = {-1}, bool go = {1}> {"
    " a, b = Loop (k, go, x) <body = step (int64 i, bool c, float[n] p) => (bool d, float[n] q, float[n] r)"
    " { d = Identity(c) q = Sin(p) r = Neg(q) }> s = Shape(b) e = Expand(x, s) y = Mul(e, b)"
    " r = Size(b) g1 = Reshape(r, m) f = Reshape(y, g1) v = Cos(f) }"
)


def ones(count: int, length: int = 6) -> torch.Tensor:
    """A vector with so many elements that are not zero, in places that differ from call to call."""
    x = torch.rand(length) + 0.5
    x[torch.randperm(length)[: length - count]] = 0
    return x


def lengths(count: int) -> dict[str, Any]:
    return {"x": ones(count), "w": torch.rand(1)}


def test_m5_what_hangs_on_the_shape_of_a_seam_is_no_seam() -> None:
    session, eager = pair(LENGTHS)
    for _ in range(6):
        agree(session, eager, lengths(3))
    assert regions(session) == ["1 recorded", "NonZero", "6 recorded"]
    assert counted(session, "captures", "replays", "retirements") == (1, 3, 0)
    assert_expected_inline(
        session.explain().partition("\nmemory")[0],
        """\
(x: float32[6], w: float32[1]) -> (y, v): captured after 6 runs
13 steps on cpu: 7 in 2 segments, 1 in 1 seam, 5 folded into constants
5 of these hold as long as shapes that depend on data stay as they are
key feeds: none

regions
  segment  1 step, 1 launch
  seam     NonZero_1 (ai.onnx::NonZero)
           kernel declares a seam: the size of the output depends on the data
           every replay compares the shape of 'z'
  segment  6 steps, 3 launches
""",
    )


def test_m7_another_shape_gives_the_right_result_and_retires_the_capture() -> None:
    session, eager = pair(LENGTHS)
    warmed(session, lengths(3))
    agree(session, eager, lengths(5))
    assert states(session) == ["cold"]
    assert_expected_inline(
        str(entries(session)[0].report),
        """\
node       op                reason    message
---------  ----------------  --------  ----------------------------------------------------------
NonZero_1  ai.onnx::NonZero  diverged  'z' was int64[1, 3] in the warm run and is now int64[1, 5]""",
    )
    for _ in range(5):
        agree(session, eager, lengths(5))
    assert counted(session, "captures", "replays", "retirements") == (2, 4, 1)


def test_m7_a_shape_that_differs_in_the_capture_run_declines_it() -> None:
    session, eager = pair(LENGTHS)
    for count in (3, 3, 4):
        agree(session, eager, lengths(count))
    assert states(session) == ["cold"] and reasons(session) == [Reason.DIVERGED]
    assert_expected_inline(
        str(entries(session)[0].report),
        """\
node       op                reason    message
---------  ----------------  --------  ----------------------------------------------------------
NonZero_1  ai.onnx::NonZero  diverged  'z' was int64[1, 3] in the warm run and is now int64[1, 4]""",
    )
    for _ in range(4):
        agree(session, eager, lengths(4))
    assert counted(session, "captures", "failed captures", "replays") == (1, 1, 2)


@pytest.mark.parametrize("settled", [0, 3])
def test_m7_shapes_that_never_settle_cost_their_constants_and_leave_the_seams_as_without(
    settled: int,
) -> None:
    session, eager = pair(LENGTHS)
    for number in range(40):
        agree(session, eager, lengths(2 if number < settled else number % 6))
    assert regions(session) == ["1 recorded", "NonZero"]
    assert counted(session, "loosened nodes", "latched signatures") == (1, 0)
    captures = counted(session, "captures")
    for number in range(12):
        agree(session, eager, lengths(number % 6))
    assert counted(session, "captures") == captures and states(session) == ["captured"]
    text = session.explain()
    assert "as long as shapes" not in text and "compares" not in text


@pytest.mark.parametrize("first, second", [(3, 4), (4, 3), (5, 5)])
def test_m7_constants_that_hang_on_shapes_before_the_divergence_still_hold(first: int, second: int) -> None:
    """Some of what is read afterwards was known at the first seam, some hangs on both."""
    session, eager = pair(TWICE)
    warmed(session, {"x": ones(3), "w": ones(3)})
    for _ in range(2):
        agree(session, eager, {"x": ones(3), "w": ones(3)})
    agree(session, eager, {"x": ones(first), "w": ones(second)})
    assert counted(session, "retirements") == (1,)


def test_m7_every_output_may_be_asked_for() -> None:
    """Constants that the user gets are the user's, also those that hold only for a while."""
    for names in (["o"], ["s", "p", "u"], ["p", "p", "y"], ["z", "o"]):
        session, eager = pair(TWICE)
        for count in (2, 2, 2, 2, 2, 5, 2, 2, 2, 2):
            feed = {"x": ones(count), "w": ones(2)}
            agree(session, eager, feed, names)
            for result in session.run(names, feed):
                result.zero_()
            agree(session, eager, feed, names)


def test_m7_the_turns_of_a_loop() -> None:
    session, eager = pair(TURNS)
    for turns in (2, 2, 2, 2, 2, 2):
        agree(session, eager, {"x": torch.rand(3), "k": torch.tensor(turns)})
    assert regions(session) == ["Loop", "4 recorded"]
    # The number of turns is a key feed until it has had too many values.
    for turns in (1, 2, 3, 4, 5, 5, 5, 5, 5, 5, 6, 5, 5, 5, 2):
        agree(session, eager, {"x": torch.rand(3), "k": torch.tensor(turns)})
    assert counted(session, "captures", "retirements", "demoted key feeds") == (3, 2, 1)


def test_m7_a_divergence_between_steps_of_one_seam() -> None:
    """A stretch of views is one seam of several steps, of which a later one has a number that has changed."""
    text = (
        "g (float[n] x, float[6, 2] w) => (float[?, ?] y, float[?, ?] u) <int64[1] one = {1}, int64[1] zero ="
        " {0}> { z = NonZero(x) t = Transpose(z) s = Shape(t) k = Gather(s, zero) v = Slice(w, zero, k, zero)"
        " y = Transpose(v) m = NonZero(y) h = Transpose(m) j = Transpose(h) f = Shape(h) i = Gather(f, zero)"
        " a = Slice(j, zero, i, one) e = Cast <to = 1> (a) u = Sin(e) }"
    )
    session, eager = pair(text, verify=True)
    w = torch.rand(6, 2)
    warmed(session, {"x": ones(3), "w": w})
    assert regions(session) == ["NonZero", "Transpose", "NonZero", "5 recorded"]
    for count in (3, 5, 3, 3, 3, 2, 0, 3, 3, 3, 6):
        agree(session, eager, {"x": ones(count), "w": w})
    assert counted(session, "captures", "retirements") == (3, 3)
    report = entries(session)[0].report
    assert report is not None and report.rows[0].message.startswith("'t' was int64[3, 1] in the warm run")


def test_m7_a_replay_by_hand_says_that_the_capture_is_no_longer_valid() -> None:
    text = TWICE.replace("(float[?] y, float[?] u, int64[2] o)", "(float[1] y)").replace(
        "y = Sin(b)", "r = Sin(b) y = ReduceSum <keepdims = 1> (r)"
    )
    session, eager = pair(text)
    x, w, y = ones(3), ones(2), torch.empty(1)
    binding = session.bind()
    binding.input("x", x)
    binding.input("w", w)
    binding.output("y", y)
    assert binding.capture() is None
    for counts, valid in [((3, 2), True), ((3, 2), True), ((4, 2), False)]:
        x.copy_(ones(counts[0]))
        w.copy_(ones(counts[1]))
        assert binding.replay() is valid
        same([y], eager.run(None, {"x": x, "w": w}))
    for counts in [(4, 2), (4, 2), (4, 3)]:
        x.copy_(ones(counts[0]))
        w.copy_(ones(counts[1]))
        binding.run()
        same([y], eager.run(None, {"x": x, "w": w}))


def test_m24_a_trace_tells_the_rest_of_a_diverged_run() -> None:
    session, eager = pair(TWICE)
    warmed(session, {"x": ones(3), "w": ones(2)})
    feed = {"x": ones(3), "w": ones(4)}
    with session.trace() as timeline:
        results = session.run(None, feed)
    same(results, eager.run(None, feed))
    told = [span for span in timeline.spans if span.kind in (SEGMENT, SEAM, OP)]
    assert [span.name for span in told if span.kind != OP] == ["segment 0", "NonZero", "segment 2", "NonZero"]
    last = told[-1]
    assert (last.name, last.facts["region"]) == ("Cos", 4)


def test_m21_the_length_of_a_sequence_is_no_shape() -> None:
    text = (
        "g (float[n] x, int64[k] l, float[1] w) => (float[?] y) <int64[1] m = {-1}>"
        " { p = SplitToSequence(x, l) c = SequenceLength(p) d = Reshape(c, m) e = Expand(w, d) y = Neg(e) }"
    )
    session, eager = pair(text)
    for split in ([2, 4], [3, 3], [1, 5], [2, 4]):
        agree(session, eager, {"x": torch.rand(6), "l": torch.tensor(split), "w": torch.rand(1)})
    a = torch.tensor
    for split in ([6], [3, 3], [2, 2, 2], [3, 3]) * 5:
        agree(session, eager, {"x": torch.rand(6), "l": a(split), "w": torch.rand(1)})


def test_m3_a_number_that_data_gives_is_still_a_seam() -> None:
    text = (
        "g (float[n] x, float[1] w) => (float[?] y, float[?] v) <int64[1] m = {-1}> { z = NonZero(x)"
        " q = ReduceMax <keepdims = 0> (z) r = Reshape(q, m) e = Expand(w, r) y = Neg(e) s = Shape(y)"
        " f = Expand(w, s) v = Sin(f) }"
    )
    session, eager = pair(text)
    feed = {"x": torch.tensor([1.0, 0.0, 2.0, 3.0]), "w": torch.rand(1)}
    for _ in range(5):
        agree(session, eager, feed)
    assert regions(session) == ["NonZero", "2 recorded", "Expand", "3 recorded"]
    assert "its input 'shape' is a number that follows from data" in session.explain()
    # As many are not zero, and the last of them is in another place.
    agree(session, eager, {"x": torch.tensor([1.0, 2.0, 3.0, 0.0]), "w": torch.rand(1)})
    assert_expected_inline(
        str(entries(session)[0].report),
        """\
node      op               reason    message
--------  ---------------  --------  --------------------------------------------------------
Expand_3  ai.onnx::Expand  diverged  'e' was float32[3] in the warm run and is now float32[2]""",
    )


def drawn(seed: int) -> str:
    """A graph of vectors whose lengths depend on data, and of numbers that follow from those lengths."""
    draw = random.Random(seed)
    vectors, numbers, nodes = ["x", "w"], ["two"], []
    for place in range(draw.randrange(4, 28)):
        v, a, b, n = f"v{place}", draw.choice(vectors[-4:]), draw.choice(vectors), draw.choice(numbers[-3:])
        kind = draw.choice(["Keep", "Shape", "Shape", "Mul", "Range", "Fill", "Expand", "Slice", "Concat"])
        kind = draw.choice([kind, kind, "Neg", "Scale", "If", "Pick"])
        if kind == "Keep":
            nodes.append(f"t{v} = Greater({a}, half) {v} = Compress <axis = 0> ({a}, t{v})")
        elif kind in ("Shape", "Mul"):
            made = f"{v} = Shape({a})" if kind == "Shape" else f"s{v} = Min({n}, limit) {v} = Mul(s{v}, two)"
            nodes.append(made)
            numbers.append(v)
            continue
        elif kind == "Range":
            nodes.append(f"s{v} = Squeeze({n}) r{v} = Range(none, s{v}, once) {v} = Cast <to = 1> (r{v})")
        elif kind == "Fill":
            nodes.append(f"f{v} = ConstantOfShape({n}) {v} = Cos(f{v})")
        elif kind == "Expand":
            nodes.append(f"m{v} = ReduceSum <keepdims = 1> ({a}) {v} = Expand(m{v}, {n})")
        elif kind == "Slice":
            nodes.append(f"{v} = Slice({a}, zero, {n})")
        elif kind == "Concat":
            nodes.append(f"{v} = Concat <axis = 0> ({a}, {b})")
        elif kind == "Scale":
            nodes.append(f"m{v} = ReduceSum <keepdims = 1> ({b}) {v} = Mul({a}, m{v})")
        elif kind == "Pick":
            nodes.append(f"z{v} = NonZero({a}) q{v} = Squeeze(z{v}, zero) {v} = Gather({a}, q{v})")
        elif kind == "If":
            taken = f"{{ p{place} = Concat <axis = 0> ({a}, {a}) }}"
            other = f"{{ o{place} = Identity({b}) }}"
            nodes.append(
                f"q{v} = ReduceSum <keepdims = 0> ({a}) g{v} = Greater(q{v}, half) {v} = If (g{v})"
                f" <then_branch = t{place} () => (float[?] p{place}) {taken},"
                f" else_branch = e{place} () => (float[?] o{place}) {other}>"
            )
        else:
            nodes.append(f"{v} = Neg({a})")
        vectors.append(v)
    outputs = {vectors[-1], draw.choice(vectors[2:] or ["x"]), *draw.sample(numbers, k=min(2, len(numbers)))}
    declared = ", ".join(f"{'int64' if o in numbers else 'float'}[?] {o}" for o in sorted(outputs))
    return (
        f"g (float[n] x, float[m] w) => ({declared}) <int64[1] two = {{2}}, int64[1] limit = {{20}},"
        f" int64[1] zero = {{0}}, float half = {{0.5}}, int64 none = {{0}}, int64 once = {{1}}>"
        f" {{ {' '.join(nodes)} }}"
    )


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_m7_drawn_graphs_follow_their_data(first: int) -> None:
    told = {"replays": 0, "retirements": 0}
    for seed in range(first, first + 20):
        draw = random.Random(seed)
        torch.manual_seed(seed)
        session, eager = pair(drawn(seed), verify=seed % 3 == 0)
        usual = (draw.randrange(1, 5), draw.randrange(1, 5))
        for number in range(16):
            counts = usual if number < 4 or draw.random() < 0.6 else (draw.randrange(7), draw.randrange(7))
            agree(session, eager, {"x": ones(counts[0]), "w": ones(counts[1])})
        assert counted(session, "probe mismatches") == (0,)
        for name in told:
            told[name] += counted(session, name)[0]
    assert all(told.values()), told
