"""Taint: what follows from the signature alone, and which feeds may be part of it by their value."""

from __future__ import annotations

from plan.planning import graph_of, ids, names, steps_of

from torch_ort_session.plan.analysis.static_values import find_static_values, key_feed_candidates
from torch_ort_session.plan.lowering.steps import NOTHING, Steps


def found(text: str, *keys: str, **kwargs: object) -> tuple[str, str]:
    """Names of the values whose data is static, and of those whose shape alone is."""
    steps = steps_of(graph_of(text, **kwargs))
    result = find_static_values(steps, ids(steps, *keys))
    assert NOTHING in result.data
    assert result.data <= result.shape
    return names(steps, result.data), names(steps, result.shape - result.data)


def assumed(text: str, *loose: str, opaque: str = "") -> dict[str, str]:
    """The values whose data is assumed, by the node whose result's shape they follow from last."""
    steps = steps_of(graph_of(text))
    result = find_static_values(steps, unstable=loose, opaque=ids(steps, *opaque.split()))
    assert not result.assumed.keys() & result.data
    places = sorted(set(result.assumed.values()))
    follow = {place: [v for v, since in result.assumed.items() if since == place] for place in places}
    return {steps.items[place].node.name: names(steps, values) for place, values in follow.items()}


def candidates(text: str) -> str:
    steps = steps_of(graph_of(text))
    return names(steps, key_feed_candidates(steps))


def test_the_shape_of_a_feed_is_static_and_its_data_is_not() -> None:
    text = "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { a = Add(x, w) y = Neg(a) }"
    assert found(text) == ("w", "a x y")


def test_what_is_computed_from_shapes_is_static() -> None:
    text = (
        "g (float[b, 4] x) => (float[?, ?] y) <int64 one = {1}, int64[1] z = {0}> { s = Shape(x)"
        " n = Gather(s, one) t = Mul(n, n) u = Unsqueeze(t, z) f = Reshape(x, u)"
        " h = Neg(f) k = Shape(h) y = Expand(h, k) }"
    )
    assert found(text) == ("k n one s t u z", "f h x y")


def test_a_static_value_of_a_seam_is_static() -> None:
    """What a seam makes of constants is as fixed as they are."""
    text = "g (float[2] x) => (int64[1, ?] y, float[2] z) <float[2] w = {1, 0}> { y = NonZero(w) z = Neg(x) }"
    assert found(text) == ("w y", "x z")


def test_the_result_of_a_seam_has_neither() -> None:
    text = "g (float[2] x) => (int64[?] y) { n = NonZero(x) a = Neg(n) s = Shape(a) y = Add(s, s) }"
    assert found(text) == ("", "x")


HANGING = (
    "g (float[2] x, float[2] w) => (float[?] y) <int64[1] one = {1}, int64[1] m = {-1}> { n = NonZero(x)"
    " s = Shape(n) k = Slice(s, one, m) t = Mul(k, k) u = NonZero(w) a = Neg(u) v = Shape(a) j = Size(n)"
    " b = Reshape(j, m) c = Concat <axis = 0> (b, v, t) d = ReduceSum <keepdims = 1> (c)"
    " y = Expand(x, d) }"
)


def test_m5_what_follows_from_shapes_that_are_not_static_is_assumed() -> None:
    assert assumed(HANGING) == {"NonZero_0": "b j k s t", "Neg_5": "c d v"}


def test_m7_nothing_is_assumed_of_shapes_that_do_not_settle() -> None:
    assert assumed(HANGING, "NonZero_4") == {"NonZero_0": "b j k s t"}
    assert assumed(HANGING, "NonZero_0") == {"Neg_5": "v"}
    assert assumed(HANGING, "NonZero_0", "NonZero_4") == {}
    assert assumed(HANGING, "Neg_5") == {"NonZero_0": "b j k s t"}


def test_m21_nothing_is_assumed_of_what_has_no_shape() -> None:
    text = (
        "g (float[6] x, int64[k] l) => (int64 c, int64 d) { p = SplitToSequence(x, l) c = SequenceLength(p)"
        " n = NonZero(x) d = Size(n) }"
    )
    assert assumed(text, opaque="p") == {"NonZero_2": "d"}


def test_m5_data_and_what_is_random_are_not_assumed() -> None:
    text = (
        "g (float[2] x) => (int64[?] y) <int64[1] m = {-1}> { n = NonZero(x) q = ReduceMax <keepdims = 0> (n)"
        " s = Shape(n) r = Add(s, q) f = ConstantOfShape(s) h = RandomNormalLike(f) k = Cast <to = 7> (h)"
        " y = Add(k, s) }"
    )
    assert assumed(text) == {"NonZero_0": "f s"}


def test_a_shape_that_hangs_on_data_is_not_static() -> None:
    text = (
        "g (float[6] x, int64[2] s) => (float[?, ?] y, int64[2] k)"
        " { r = Reshape(x, s) y = Neg(r) k = Shape(y) }"
    )
    assert found(text) == ("", "s x")
    assert found(text, "s") == ("k s", "r x y")


def test_m6_a_key_feed_is_static_data() -> None:
    text = (
        "g (float[6] x, int64 n, int64 m) => (float[?] y, float[?] z) <int64[1] o = {0}> {"
        " u = Unsqueeze(n, o) v = Unsqueeze(m, o) y = Slice(x, o, u) z = Slice(x, o, v) }"
    )
    assert found(text, "n") == ("n o u", "m v x y")


def test_random_results_are_not_static_although_all_they_read_is() -> None:
    text = (
        "g (float[2] x) => (float[?] y, float[2] z) <float[2] w = {1, 2}, int64[1] s = {3}>"
        " { a = RandomNormalLike(w) b = RandomUniform <shape = [2]> () c = Bernoulli(w) d = Add(a, b)"
        " y = Add(d, c) z = Neg(x) }"
    )
    data, shape = found(text)
    assert data == "w"
    assert shape == "a b c d x y z"


def test_what_a_body_makes_is_never_taken_to_be_static() -> None:
    text = (
        "g (float[2] x, bool c) => (float[?] y, float[2] k) <float[2] w = {1, 2}, bool t = {1}> { y = If (t)"
        " <then_branch = a () => (float[2] p) { p = Neg(w) }, else_branch = b () => (float[2] q)"
        " { q = Abs(w) }> k = If (c) <then_branch = a () => (float[2] p) { p = Neg(x) },"
        " else_branch = b () => (float[2] q) { q = Abs(x) }> }"
    )
    data, shape = found(text)
    assert "y" not in data.split()
    assert not {"y", "k"} & set(shape.split())


def test_a_default_that_could_be_fed_is_not_static() -> None:
    text = "g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }"
    assert found(text, ir=3) == ("", "w x y")


def test_an_input_of_constant_form_does_not_make_a_shape_hang_on_data() -> None:
    """The exponent of Pow is a number where it is constant, and a tensor where it is not."""
    text = "g (float[2] x, float e) => (float[2] y) { y = Pow(x, e) }"
    assert found(text) == ("", "e x y")


KEYS = {
    "a host input": ("g (float[6] x, int64[1] n) => (float[?] y) { y = Reshape(x, n) }", "n"),
    "through arithmetic": (
        "g (float[6] x, int64[1] n) => (float[?] y) <int64[1] t = {2}> { m = Mul(n, t) y = Reshape(x, m) }",
        "n",
    ),
    "a predicate": (
        "g (float[2] x, int64 n, float f) => (float[2] y) <int64 k = {3}> { c = Equal(n, k) y = If (c)"
        " <then_branch = a () => (float[2] p) { p = Neg(x) }, else_branch = b () => (float[2] q)"
        " { q = Mul(x, f) }> }",
        "n",
    ),
    "a host input inside of a branch": (
        "g (float[6] x, bool c, int64[1] n) => (float[?] y) { y = If (c) <then_branch = a () => (float[?] p)"
        " { p = Reshape(x, n) }, else_branch = b () => (float[6] q) { q = Neg(x) }> }",
        "c n",
    ),
    "a trip count": (
        "g (float[2] x, int64 n, bool c) => (float[2] y) { y = Loop (n, , x) <body = b (int64 i, bool d,"
        " float[2] s) => (bool e, float[2] o) { e = Identity(d) o = Neg(s) }> }",
        "n",
    ),
    "floats are no keys": (
        "g (float[6] x, float f) => (float[?] y) <int64[1] o = {0}> { i = Cast <to = 7> (f)"
        " u = Unsqueeze(i, o) y = Reshape(x, u) }",
        "",
    ),
    "read by the shape alone": (
        "g (int64[n] k, float[?] x) => (float[?] y) { s = Shape(k) y = Expand(x, s) }",
        "",
    ),
    "integers that stay data": (
        "g (int64 i, float[4, 2] x) => (float[2] y) { y = Gather(x, i) }",
        "",
    ),
}


def test_m6_feeds_that_may_be_part_of_the_signature_by_value() -> None:
    assert {name: candidates(text) for name, (text, _) in KEYS.items()} == {
        name: expected for name, (_, expected) in KEYS.items()
    }


def test_taint_does_not_hang_on_how_often_it_is_asked() -> None:
    steps: Steps = steps_of(graph_of(KEYS["through arithmetic"][0]))
    assert find_static_values(steps).data == find_static_values(steps).data
    assert find_static_values(steps, ids(steps, "n")).data > find_static_values(steps).data
