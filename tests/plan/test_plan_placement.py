"""Shapes are computed on the host: no step waits for the device, and none mixes the two sides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from expecttest import assert_expected_inline
from networks import Cnn, Transformer, cnn_model, transformer_model
from plan.onmeta import OneSide, run_on_meta
from textmodel import message, model

import torch_ort_session as tos

X = torch.ones(2, 6, 8)
I64 = np.int64

# Written as exporters write them: each asks for shapes in another way.
GRAPHS: dict[str, tuple[str, dict[str, Any], list[tuple[int, ...]]]] = {
    "reshape by gathered dims": (
        "g (float[b, s, 8] x) => (float[?, ?, 2, 4] y) <int64 zero = {0}, int64 one = {1}, int64[1] a = {0},"
        " int64[1] h = {2}, int64[1] d = {4}> { sh = Shape(x) b0 = Gather(sh, zero) s0 = Gather(sh, one)"
        " b1 = Unsqueeze(b0, a) s1 = Unsqueeze(s0, a) t = Concat <axis = 0> (b1, s1, h, d)"
        " y = Reshape(x, t) }",
        {"x": X},
        [(2, 6, 2, 4)],
    ),
    "shape arithmetic with division": (
        "g (float[b, s, 8] x) => (float[?, ?, ?] y) <int64 last = {2}, int64 two = {2}, int64[1] a = {0},"
        " int64[1] m = {-1}> { sh = Shape(x) c = Gather(sh, last) half = Div(c, two) h1 = Unsqueeze(half, a)"
        " t = Concat <axis = 0> (m, h1, h1) y = Reshape(x, t) }",
        {"x": X},
        [(6, 4, 4)],
    ),
    "casts through float": (
        "g (float[b, s, 8] x) => (float[?] y) <int64 one = {1}, float two = {2.0}, int64[1] a = {0}>"
        " { sh = Shape(x) c = Gather(sh, one) f = Cast <to = 1> (c) h = Div(f, two) q = Floor(h)"
        " i = Cast <to = 7> (q) r = Unsqueeze(i, a) y = ConstantOfShape(r) }",
        {"x": X},
        [(3,)],
    ),
    "positions": (
        "g (float[b, s, 8] x, float[16, 8] table) => (float[?, 8] y) <int64 zero = {0}, int64 one = {1}>"
        " { sh = Shape(x) s0 = Gather(sh, one) r = Range(zero, s0, one) y = Gather(table, r) }",
        {"x": X, "table": torch.ones(16, 8)},
        [(6, 8)],
    ),
    "causal mask": (
        "g (float[b, s, 8] x) => (bool[?, ?] y) <int64 zero = {0}, int64 one = {1}, int64[1] a = {0},"
        " int64[1] b = {1}, int64[1] m = {-1}> { sh = Shape(x) s0 = Gather(sh, one)"
        " r = Range(zero, s0, one) c = Unsqueeze(r, a) d = Unsqueeze(r, b) y = LessOrEqual(c, d) }",
        {"x": X},
        [(6, 6)],
    ),
    "expand with ones where a dim is one": (
        "g (float[1, s, 8] x) => (float[?, ?, ?] y) <int64[3] e = {-1, 1, 1}, int64[3] q = {2, 6, 8},"
        " int64[1] r = {3}, int64[3] n = {-1, -1, -1}> { ones = ConstantOfShape <value = int64[1] {1}> (r)"
        " eq = Equal(q, n) w = Where(eq, ones, q) y = Expand(x, w) }",
        {"x": X[:1]},
        [(2, 6, 8)],
    ),
    "pads that are built": (
        "g (float[b, s, 8] x) => (float[?, ?, ?] y) <int64[1] n = {4}, int64[2] p = {1, 2},"
        " int64[2] r = {-1, 2},"
        " int64[1] s0 = {-1}, int64[1] e = {-9223372036854775807}, int64[1] m = {-1}, int64[1] z = {0}>"
        " { k = ConstantOfShape <value = int64[1] {0}> (n) c = Concat <axis = 0> (p, k) t = Reshape(c, r)"
        " f = Slice(t, s0, e, z, m) u = Transpose <perm = [1, 0]> (f) v = Reshape(u, m)"
        " w = Cast <to = 7> (v) y = Pad(x, w) }",
        {"x": X},
        [(2, 6, 11)],
    ),
    "slices with computed bounds": (
        "g (float[b, s, 8] x, float[b, t, 8] past) => (float[?, ?, ?] y) <int64[1] one = {1}, int64 i = {1},"
        " int64[1] a = {0}> { sh = Shape(x) s0 = Gather(sh, i) s1 = Unsqueeze(s0, a) ph = Shape(past)"
        " p0 = Gather(ph, i) p1 = Unsqueeze(p0, a) e = Add(s1, p1) c = Concat <axis = 1> (past, x)"
        " y = Slice(c, p1, e, one) }",
        {"x": X, "past": torch.ones(2, 3, 8)},
        [(2, 6, 8)],
    ),
    "resize to a computed size": (
        "g (float[1, 2, h, w] x) => (float[?, ?, ?, ?] y) <int64[2] two = {2, 2}>"
        " { sh = Shape <start = 2> (x) t = Mul(sh, two) nc = Shape <end = 2> (x)"
        ' z = Concat <axis = 0> (nc, t) y = Resize <mode = "nearest"> (x, , , z) }',
        {"x": torch.ones(1, 2, 3, 4)},
        [(1, 2, 6, 8)],
    ),
    "a shape that is fed": (
        "g (float[b, s, 8] x, int64[k] shape) => (float[?, ?] y) { y = Reshape(x, shape) }",
        {"x": X, "shape": np.array([12, 8])},
        [(12, 8)],
    ),
    "a length that is fed": (
        "g (float[b, s, 8] x, int64[1] k) => (float[?, ?, ?] v, int64[?, ?, ?] i) { v, i = TopK(x, k) }",
        {"x": X, "k": np.array([3])},
        [(2, 6, 3), (2, 6, 3)],
    ),
    "a host value that is data too": (
        "g (float[b, s, 8] x) => (float[?, ?, ?] y, int64[?] z) <int64[1] two = {2}, int64[1] i = {1}>"
        " { sh = Shape(x) s1 = Gather(sh, i) f = Cast <to = 1> (s1) y = Mul(x, f) q = Mul(s1, two)"
        " z = Concat <axis = 0> (q, s1) }",
        {"x": X},
        [(2, 6, 8), (2,)],
    ),
    "a constant that is a shape and data": (
        "g (float[b, s, 8] x) => (float[?, ?] y, float[?, ?] z) <int64[2] c = {48, 2}>"
        " { y = Reshape(x, c) f = Cast <to = 1> (c) z = Div(y, f) }",
        {"x": X},
        [(48, 2), (48, 2)],
    ),
    "scales and bounds": (
        "g (float[b, s, 8] x) => (float[?, ?, ?] y) <float lo = {-1}, float hi = {1}>"
        " { y = Clip(x, lo, hi) }",
        {"x": X},
        [(2, 6, 8)],
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_no_shape_waits_for_the_device(name: str) -> None:
    text, feed, shapes = GRAPHS[name]
    run = run_on_meta(model(text), feed)
    assert run.shapes == shapes
    assert run.mixed == []
    results = tos.load(model(text)).run(None, feed)
    assert [tuple(item.shape) for item in results] == shapes


def test_exported_networks_wait_for_nothing() -> None:
    source = Transformer()
    feed = {"ids": torch.zeros(2, 5, dtype=torch.int64), "mask": torch.zeros(2, 5)}
    run = run_on_meta(transformer_model(source), feed)
    assert (run.shapes, run.mixed, run.copies) == ([(2, 5, 20)], [], [])
    run = run_on_meta(cnn_model(Cnn()), {"x": torch.zeros(2, 3, 16, 16)})
    assert (run.shapes, run.mixed, run.on_host) == ([(2, 5)], [], [])


BODIES: dict[str, tuple[str, dict[str, Any], list[tuple[int, ...]]]] = {
    "a constant of the graph decides a shape": (
        "g (float[b, s, 8] x, bool c) => (float[?, ?] y) <int64[2] r = {12, 8}> { y = If (c) <then_branch ="
        " t () => (float[?, ?] a) { a = Reshape(x, r) }, else_branch = e () => (float[?, ?] b)"
        " { n = Neg(x) b = Reshape(n, r) }> }",
        {"x": X, "c": True},
        [(12, 8)],
    ),
    "a host value of the graph decides a shape": (
        "g (float[b, s, 8] x, bool c) => (float[?] y) <int64[1] i = {1}> { sh = Shape(x) s1 = Gather(sh, i)"
        " y = If (c) <then_branch = t () => (float[?] a) { d = Add(s1, s1) a = ConstantOfShape(d) },"
        " else_branch = e () => (float[?] b) { b = ConstantOfShape(s1) }> }",
        {"x": X, "c": True},
        [(12,)],
    ),
    "a branch that hangs on a shape": (
        "g (float[b, s, 8] x) => (float[?, ?, ?] y) <int64 i = {1}, int64 six = {6}> { sh = Shape(x)"
        " s1 = Gather(sh, i) c = Equal(s1, six) y = If (c) <then_branch = t () => (float[?, ?, ?] a)"
        " { a = Neg(x) }, else_branch = e () => (float[?, ?, ?] b) { b = Concat <axis = 0> (x, x) }> }",
        {"x": X},
        [(2, 6, 8)],
    ),
    "a branch that hangs on a fed number": (
        "g (float[b, s, 8] x, int64 rate) => (float[?, ?, ?] y) <int64 r = {16000}> { c = Equal(rate, r)"
        " y = If (c) <then_branch = t () => (float[?, ?, ?] a) { a = Neg(x) },"
        " else_branch = e () => (float[?, ?, ?] b) { b = Concat <axis = 0> (x, x) }> }",
        {"x": X, "rate": np.array(16000)},
        [(2, 6, 8)],
    ),
    "a result of a branch that is a host value": (
        "g (float[b, s, 8] x, bool c) => (int64[?] y) { y = If (c) <then_branch = t () => (int64[?] a)"
        " { a = Shape(x) }, else_branch = e () => (int64[?] b) { n = Neg(x) b = Shape(n) }> }",
        {"x": X, "c": True},
        [(3,)],
    ),
    "a loop over a shape": (
        "g (float[b, s, 8] x) => (float[?, ?, ?] y, float[?, ?, ?] z) <int64 i = {1}, bool go = {1}> {"
        " sh = Shape(x) s1 = Gather(sh, i) y, z = Loop (s1, go, x) <body = b (int64 n, bool c,"
        " float[?, ?, ?] p) => (bool d, float[?, ?, ?] o, float[?, ?] q) <int64[1] a = {1}>"
        " { d = Identity(c) k = Unsqueeze(n, zero) e = Add(k, a) r = Slice(x, k, e, a)"
        " q = Squeeze(r, a) f = Cast <to = 1> (n) o = Add(p, f) }> }",
        {"x": X},
        [(2, 6, 8), (6, 2, 8)],
    ),
    "an inner loop and a branch within": (
        "g (float[b, s, 8] x, bool c) => (float[?, ?] y) <int64[2] r = {12, 8}, int64 two = {2}> {"
        " y = If (c) <then_branch = t () => (float[?, ?] a) { a0 = Reshape(x, r)"
        " a = Loop (two, , a0) <body = b (int64 n, bool u, float[?, ?] p) => (bool d, float[?, ?] o)"
        " { d = Identity(u) sh = Shape(p) q = Reshape(p, sh) o = Reshape(q, r) }> },"
        " else_branch = e () => (float[?, ?] b) { b = Reshape(x, r) }> }",
        {"x": X, "c": True},
        [(12, 8)],
    ),
}


BODIES["a sequence of host values from a branch"] = (
    "g (float[b, s, 8] x, bool c) => (float[?, ?, ?] y) { q = If (c) <then_branch = t () => (seq(int64[?]) a)"
    " { h = Shape(x) a = SequenceConstruct(h, h) }, else_branch = e () => (seq(int64[?]) b)"
    " { b = SequenceEmpty <dtype = 7> () }> k = ConcatFromSequence <axis = 0, new_axis = 1> (q)"
    " f = Cast <to = 1> (k) m = ReduceMax <keepdims = 0> (f) y = Mul(x, m) }",
    {"x": X, "c": True},
    [(2, 6, 8)],
)
BODIES["a sequence of values of both sides"] = (
    "g (float[b, s, 8] x, bool c) => (int64 n) { h = Shape(x) i = Cast <to = 7> (x) q = SequenceConstruct(h)"
    " p = SequenceInsert(q, i) n = SequenceLength(p) }",
    {"x": X, "c": True},
    [()],
)


@pytest.mark.parametrize("name", BODIES)
def test_bodies_read_shapes_on_the_host(name: str) -> None:
    text, feed, shapes = BODIES[name]
    weights = {"zero": np.zeros(1, I64)} if "zero" in text else {}
    run = run_on_meta(model(text, weights=weights), feed)
    assert run.shapes == shapes
    assert run.mixed == []
    results = tos.load(model(text, weights=weights)).run(None, feed)
    assert [tuple(item.shape) for item in results] == shapes


def test_constants_that_do_not_become_numbers_are_on_the_device() -> None:
    texts = {
        "behind it comes data": "<float low = {-1}> { h = ReduceMax <keepdims = 0> (x) y = Clip(x, low, h) }",
        "before it comes data": "<float high = {1}> { l = ReduceMin <keepdims = 0> (x) y = Clip(x, l,"
        " high) }",
        "it has dims": "<float[8] e = {1, 2, 3, 4, 5, 6, 7, 8}> { y = Pow(x, e) }",
        "it is a number": "<float low = {-1}, float high = {1}, float e = {2}> { c = Clip(x, low, high)"
        " y = Pow(c, e) }",
    }
    for label, text in texts.items():
        run = run_on_meta(model(f"g (float[b, s, 8] x) => (float[?, ?, ?] y) {text}"), {"x": X})
        assert (run.shapes, run.mixed) == ([(2, 6, 8)], []), label


def test_a_default_that_is_a_shape_stays_on_the_host() -> None:
    text = "g (float[6] x, int64[2] s) => (float[a, b] y) <int64[2] s = {2, 3}> { y = Reshape(x, s) }"
    assert run_on_meta(model(text, ir=3), {"x": torch.ones(6)}).shapes == [(2, 3)]
    assert run_on_meta(model(text, ir=3), {"x": torch.ones(6), "s": np.array([3, 2])}).shapes == [(3, 2)]


def test_what_runs_where() -> None:
    text, feed, _ = GRAPHS["a host value that is data too"]
    run = run_on_meta(model(text), feed)
    assert_expected_inline(
        f"on the host: {run.on_host}\ncopied: {run.copies}",
        """\
on the host: ['Shape_0', 'Gather_1', 'Cast_2', 'Mul_4', 'Concat_5']
copied: ['f']""",
    )
    text, feed, _ = GRAPHS["positions"]
    run = run_on_meta(model(text), feed)
    assert_expected_inline(
        f"on the host: {run.on_host}\ncopied: {run.copies}",
        """\
on the host: ['Shape_0', 'Gather_1']
copied: []""",
    )


def test_a_value_that_nobody_reads_on_the_host_is_made_on_the_device() -> None:
    text = "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { v = Mul(w, w) y = Add(x, v) }"
    run = run_on_meta(model(text), {"x": torch.ones(2)})
    assert (run.on_host, run.copies, run.mixed) == ([], [], [])


def test_the_check_sees_a_read() -> None:
    text = (
        "g (int64[2, 2] x) => (float[?, ?] y) <int64[1] a = {0}> { m = ReduceMax <keepdims = 0> (x, a)"
        " y = ConstantOfShape(m) }"
    )
    feed = {"x": torch.ones(2, 2, dtype=torch.int64)}
    assert_expected_inline(
        message(tos.KernelError, lambda: run_on_meta(model(text), feed)),
        """\
node 'ConstantOfShape_1' (ai.onnx::ConstantOfShape) failed: Cannot copy out of meta tensor; no
data!
  inputs: m: int64[2] meta""",
    )


def test_the_check_sees_both_sides_in_one_call() -> None:
    with OneSide() as mode:
        torch.ones(2, device="meta") * torch.tensor(2.0)
    assert mode.mixed == ["aten.mul.Tensor"]
