"""The observed run: what every value was, without a trace in what the run gives or holds."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from plan.planning import Seen, graph_of, ids, see, steps_of
from textmodel import message, model, operator
from torch import Tensor

import torch_ort_session as tos
from torch_ort_session.ops.kernel import TensorSequence, kernel
from torch_ort_session.plan.analysis.specs import Spec, eager_peak, fits, spec_of
from torch_ort_session.runtime.interpreter.observe import observe
from torch_ort_session.runtime.interpreter.program import bind_steps

X = torch.arange(6.0).reshape(2, 3)


def owner(seen: Seen, name: str) -> str:
    return seen.steps.names[seen.spec(name).owner]


def test_specs_are_what_the_tensors_were() -> None:
    seen = see(
        "g (float[2, 3] x) => (float[3, 2] t, int64[2, 3] i, bool[2, 3] b) <float[3] w = {1, 2, 3}>"
        " { a = Add(x, w) t = Transpose(a) i = Cast <to = 7> (a) b = Greater(x, a) }",
        {"x": X},
    )
    assert seen.spec("x") == spec_of(X, seen.spec("x").owner)
    assert seen.spec("a") == Spec(
        torch.float32, (2, 3), (3, 1), 0, torch.device("cpu"), 24, seen.spec("a").owner
    )
    assert seen.spec("t")[:3] == (torch.float32, (3, 2), (1, 3))
    assert (seen.spec("i").dtype, seen.spec("i").nbytes) == (torch.int64, 48)
    assert (seen.spec("b").dtype, seen.spec("b").nbytes) == (torch.bool, 6)
    assert owner(seen, "w") == "w"
    assert seen.observation.specs[0] is None
    assert all(isinstance(spec, Spec) for spec in seen.observation.specs[1:])


def test_views_are_folded_into_the_value_that_made_the_memory() -> None:
    seen = see(
        "g (float[2, 3] x) => (float[?] y, float[?, ?] v, float[?, ?] f) <int64[1] one = {1}, int64[1] two"
        " = {2}, int64[1] m = {-1}> {"
        " v = Transpose(x) a = Neg(x) b = Transpose(a) c = Slice(b, one, two) d = Reshape(a, m)"
        " e = Reshape(b, m) f = Add(c, c) y = Add(d, e) }",
        {"x": X},
    )
    found = {name: owner(seen, name) for name in "vabcdefy"}
    # A reshape of what is not contiguous is a copy, whatever its kernel declares.
    expected = {"v": "x", "a": "a", "b": "a", "c": "a", "d": "a", "e": "e", "f": "f", "y": "y"}
    assert found == expected
    assert (seen.spec("c").offset, seen.spec("c").nbytes) == (1, 24)


def test_an_address_that_is_used_again_is_no_view() -> None:
    """Each value dies before the next is made, so that torch gives the same memory over and over."""
    chain = " ".join(f"v{i + 1} = Neg(v{i})" for i in range(100))
    seen = see(f"g (float[2, 3] v0) => (float[2, 3] v100) {{ {chain} }}", {"v0": X})
    assert [owner(seen, f"v{i}") for i in range(101)] == [f"v{i}" for i in range(101)]


def test_an_address_that_is_used_again_has_no_views_of_its_past() -> None:
    views = " ".join(f"t{i} = Transpose(v{i}) v{i + 1} = Neg(t{i})" for i in range(50))
    seen = see(f"g (float[2, 3] v0) => (float[?, ?] v50) {{ {views} }}", {"v0": X})
    for i in range(50):
        assert owner(seen, f"t{i}") == f"v{i}"
        assert owner(seen, f"v{i}") == f"v{i}"


def test_a_view_keeps_its_owner_when_that_is_dropped() -> None:
    seen = see(
        "g (float[2, 3] x) => (float[?, ?] y, float[?, ?] z) { a = Neg(x) b = Transpose(a) c = Transpose(b)"
        " y = Neg(c) d = Abs(x) z = Transpose(d) }",
        {"x": X},
    )
    assert [owner(seen, name) for name in "bcdz"] == ["a", "a", "d", "d"]


@kernel("Pair", since=(1,), domain="tests")
def pair(x: Tensor) -> tuple[Tensor, Tensor]:
    both = torch.stack((x, -x))
    return both[0], both[1]


@kernel("Part", since=(1,), domain="tests")
def part(x: Tensor) -> Tensor:
    return torch.cat((x, x))[: len(x)]


@kernel("Hold", since=(1,), domain="tests")
def hold(x: Tensor) -> TensorSequence:
    return (x, (x + 1,))


@kernel("Last", since=(1,), domain="tests")
def last(x: TensorSequence) -> Tensor:
    return x[-1][0] if isinstance(x[-1], tuple) else x[-1]


def test_two_results_of_one_step_may_share_memory() -> None:
    with operator(pair, part):
        seen = see(
            "g (float[2, 3] x) => (float[2, 3] y, float[2, 3] p) { a, b = tests.Pair(x) y = Add(a, b)"
            " p = tests.Part(x) }",
            {"x": X},
        )
    assert (owner(seen, "a"), owner(seen, "b")) == ("a", "a")
    assert (seen.spec("b").offset, seen.spec("b").nbytes) == (6, 48)
    assert (owner(seen, "p"), seen.spec("p").nbytes) == ("p", 48)


def test_m21_a_sequence_keeps_the_memory_of_its_items() -> None:
    with operator(hold, last):
        seen = see(
            "g (float[2, 3] x) => (float[2, 3] y) <int64 z = {0}> { a = Neg(x) s = tests.Hold(a)"
            " b = Neg(x) c = Neg(b) t = tests.Last(s) d = Abs(t) y = Add(c, d) }",
            {"x": X},
        )
    # What only the sequence held belongs to it; nothing made in the meantime was taken for a part of it.
    assert [owner(seen, name) for name in "abctd"] == ["a", "b", "c", "s", "d"]
    kinds = {seen.steps.names[value]: kind for value, kind in seen.observation.kinds.items()}
    assert kinds == {"s": "sequence"}
    assert seen.spec("s") is None


def test_an_item_of_a_sequence_is_a_view_of_what_was_put_in() -> None:
    seen = see(
        "g (float[2, 3] x) => (float[2, 3] y) <int64 z = {0}> { a = Neg(x) s = SequenceConstruct(a)"
        " b = SequenceAt(s, z) y = Neg(b) }",
        {"x": X},
    )
    assert owner(seen, "b") == "a"


def test_values_that_are_no_tensors() -> None:
    seen = see(
        "g (float[2, 3] x) => (string[2] u, seq(float[2, 3]) s, float[3] k, bool[3] r)"
        ' <string[2] w = {"a", "b"}, float[3] one = {1, 1, 1}, float half = {0.5}, bool off = {0}>'
        " { u = Identity(w) s = SequenceConstruct(x, x) k = Dropout(one, half, off) r = Greater(one, k) }",
        {"x": X},
    )
    kinds = {seen.steps.names[value]: kind for value, kind in seen.observation.kinds.items()}
    assert kinds == {"w": "strings", "u": "strings", "s": "sequence"}


def test_static_values_are_kept_and_others_are_not() -> None:
    text = (
        "g (float[2, 3] x) => (float[?, ?] y) <int64[2] two = {2, 2}> { s = Shape(x) t = Mul(s, two) u ="
        " Sub(t, s)"
        " y = Expand(x, u) }"
    )
    steps = steps_of(graph_of(text))
    program = bind_steps(steps)
    values = list(steps.template)
    values[steps.inputs[0]] = X
    observation = observe(program, values, ids(steps, "s", "u"))
    assert {steps.names[value]: held.tolist() for value, held in observation.static.items()} == {
        "s": [2, 3],
        "u": [2, 3],
    }
    assert values[steps.names.index("u")] is None


def test_nothing_is_held_after_its_last_reader() -> None:
    alive: list[weakref.ref[object]] = []

    @kernel("Watch", since=(1,), domain="tests")
    def watch(x: Tensor) -> Tensor:
        gc.collect()
        assert not [ref for ref in alive if ref() is not None]
        made = x + 1
        if len(alive) < 3:
            alive.append(weakref.ref(made.untyped_storage()))
        return made

    with operator(watch):
        text = (
            "g (float[2, 3] x) => (float[2, 3] y) { a = tests.Watch(x) b = Neg(a) c = tests.Watch(b)"
            " d = Neg(c) e = tests.Watch(d) f = Neg(e) y = tests.Watch(f) }"
        )
        see(text, {"x": X})
    assert len(alive) == 3


def test_observing_changes_no_result() -> None:
    text = (
        "g (float[2, 3] x) => (float[?] y, float[2, 3] z) <int64[1] m = {-1}> { a = Neg(x) b = Transpose(a)"
        " c = Reshape(b, m) y = Exp(c) z = Identity(a) }"
    )
    plain = tos.load(model(text)).run(None, {"x": X})
    for got, expected in zip(see(text, {"x": X}).results, plain, strict=True):
        assert torch.equal(got, expected)


def test_a_step_that_fails_is_named_as_in_any_run() -> None:
    text = "g (float[2, 3] x, float[4] w) => (float[2, 3] y) { a = Neg(x) y = Add(a, w) }"
    feed = {"x": X, "w": torch.ones(4)}
    assert message(tos.KernelError, lambda: see(text, feed)) == message(
        tos.KernelError, lambda: tos.load(model(text)).run(None, feed)
    )


def test_m13_the_eager_peak_is_what_one_counts_by_hand() -> None:
    """Steps of 24 bytes: x is a feed, t a view; a and b live with c, then c with d."""
    seen = see(
        "g (float[2, 3] x) => (float[?, ?] y) <float[3] w = {1, 2, 3}> { a = Neg(x) b = Add(a, w) t ="
        " Transpose(a)"
        " u = Transpose(t) c = Add(u, b) d = Exp(c) e = Transpose(d) y = Neg(e) }",
        {"x": X},
    )
    assert eager_peak(seen.steps, seen.observation) == 3 * 24


@pytest.mark.parametrize("length", [1, 5, 20])
def test_m13_the_eager_peak_of_values_that_all_wait(length: int) -> None:
    made = " ".join(f"v{i} = Neg(x)" for i in range(length))
    joined = ", ".join(f"v{i}" for i in range(length))
    text = f"g (float[2, 3] x) => (float[?] y) {{ {made} y = Concat <axis = 0> ({joined}) }}"
    seen = see(text, {"x": X})
    assert eager_peak(seen.steps, seen.observation) == 2 * length * 24


def test_m13_the_eager_peak_counts_a_dead_owner_while_its_view_lives() -> None:
    seen = see(
        "g (float[2, 3] x) => (float[?, ?] y) { a = Neg(x) t = Transpose(a) b = Exp(t) c = Exp(b)"
        " d = Add(c, t) y = Neg(d) }",
        {"x": X},
    )
    assert eager_peak(seen.steps, seen.observation) == 3 * 24


def test_what_may_land_where_a_spec_was() -> None:
    spec = spec_of(X, 1)
    assert fits(spec, X + 1)
    assert fits(spec, X.t().contiguous().t())
    assert not fits(spec, X.double())
    assert not fits(spec, X[:1])
    assert not fits(spec, X.to("meta"))
