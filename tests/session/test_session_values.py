"""Any value by name, and only the nodes that it needs."""

from __future__ import annotations

import torch
from expecttest import assert_expected_inline
from textmodel import declare, load, message, operator

import torch_ort_session as tos

CHAIN = (
    "g (float[2] x, float[2] other) => (float[2] y, float[2] z) <float[2] w = {10, 20}>"
    " { a = Add(x, w) b = Neg(a) y = Abs(b) z = tests.Fail(other) }"
)


@declare
def Fail(x: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("this must not run")


X = torch.tensor([1.0, 2.0])
FEED = {"x": X, "other": X}


def chain() -> tos.Session:
    with operator(Fail):
        return load(CHAIN)


def test_an_intermediate() -> None:
    session = chain()
    assert session.run(["b"], FEED)[0].tolist() == [-11, -22]
    assert [item.tolist() for item in session.run(["a", "b"], FEED)] == [[11, 22], [-11, -22]]


def test_an_input_and_a_weight() -> None:
    session = chain()
    x, w, a = session.run(["x", "w", "a"], FEED)
    assert x is not X
    assert [item.tolist() for item in (x, w, a)] == [[1, 2], [10, 20], [11, 22]]
    w.zero_()
    x.zero_()
    assert session.run(["w"], FEED)[0].tolist() == [10, 20]
    assert X.tolist() == [1, 2]


def test_nothing_and_the_same_twice() -> None:
    session = chain()
    assert session.run([], FEED) == []
    first, second = session.run(["y", "y"], FEED)
    first.zero_()
    assert second.tolist() == [11, 22]


def test_what_is_not_asked_for_does_not_run() -> None:
    session = chain()
    assert session.run(["y"], FEED)[0].tolist() == [11, 22]
    assert_expected_inline(
        message(tos.KernelError, lambda: chain().run(None, FEED)),
        """\
node 'Fail_3' (tests::Fail) failed: this must not run
  inputs: other: float32[2] cpu""",
    )


def test_unknown_names() -> None:
    session = chain()
    assert_expected_inline(
        message(tos.ModelError, lambda: session.run(["nope"], FEED)),
        """\
graph 'g': value 'nope' is not made by anything in the graph; ask for one of its outputs,
inputs, weights or intermediate values (`torch-ort-session inspect MODEL --nodes` lists them)""",
    )
    assert_expected_inline(
        message(tos.InputError, lambda: session.run([""], FEED)),
        """output names are non-empty strings, not ''""",
    )
    assert_expected_inline(
        message(tos.InputError, lambda: session.run([3], FEED)),
        """output names are non-empty strings, not 3""",
    )  # type: ignore[list-item]
    assert session.run(["y"], FEED)[0].tolist() == [11, 22]


def test_names_of_a_body_are_not_the_graphs() -> None:
    session = load(
        "g (float[2] x, bool c) => (float[2] y) { y = If (c) <then_branch = t () => (float[2] a)"
        " { inner = Neg(x) a = Neg(inner) }, else_branch = e () => (float[2] b) { b = Identity(x) }> }"
    )
    feed = {"x": X, "c": True}
    assert session.run(["y"], feed)[0].tolist() == [1, 2]
    assert_expected_inline(
        message(tos.ModelError, lambda: session.run(["inner"], feed)),
        """\
graph 'g': value 'inner' is not made by anything in the graph; ask for one of its outputs,
inputs, weights or intermediate values (`torch-ort-session inspect MODEL --nodes` lists them)""",
    )


def test_many_choices_of_outputs() -> None:
    count = 20
    nodes = " ".join(f"v{i + 1} = Add(v{i}, x)" for i in range(count))
    session = load(f"g (float[2] x) => (float[2] v{count}) {{ v0 = Identity(x) {nodes} }}")
    for _ in range(2):
        for i in range(count + 1):
            assert session.run([f"v{i}"], {"x": X})[0].tolist() == [i + 1, 2 * (i + 1)]
    assert session(X).tolist() == [21, 42]
