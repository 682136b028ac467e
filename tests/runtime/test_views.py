"""M15: a step that would make a view of what stays the same is not run while feeds grow."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from expecttest import assert_expected_inline
from runtime.keptlab import kept
from textmodel import model

import torch_ort_session as tos
from torch_ort_session import Options
from torch_ort_session.runtime.interpreter.views import View, view_difference
from torch_ort_session.trace import counters

VIEWS = (
    "g (float[n, 3] x) => (float[n, 2] y, float[3, n] t, float[a, b] v)"
    " <float[2, 3] w = {1, 2, 3, 4, 5, 6}, int64[1] two = {2}, int64[1] zero = {0}, int64[1] one = {1}>"
    " { a = Transpose(w) y = MatMul(x, a) t = Transpose(x) b = Unsqueeze(w, zero) c = Squeeze(b, zero)"
    " s = Shape(x) d = Slice(s, one, two, zero) v = Slice(c, zero, d, one) }"
)
BY_DATA = (
    "g (float[n, 3] x, int64[1] k) => (float[a, b] y, float[c, d] z)"
    " <float[4, 1] w = {1, 2, 3, 4}, float[1, 1] e = {7}, int64[1] zero = {0}>"
    " { s = Shape(x) v = Slice(w, zero, k) z = Neg(v) y = Expand(e, s) }"
)


def grown(text: str, **options: bool) -> tuple[tos.Session, tos.Session]:
    """A session after six runs on feeds that grew, and an eager one."""
    session = tos.load(model(text), options=Options(**options))
    eager = tos.load(model(text), options=Options(capture="off"))
    for n in range(3, 9):
        check(session, eager, n)
    return session, eager


def check(session: tos.Session, eager: tos.Session, n: int) -> None:
    feed = {"x": torch.randn(n, 3)}
    if len(session.inputs) > 1:
        feed["k"] = torch.tensor([n % 4 + 1])
    for got, want in zip(session.run(None, feed), eager.run(None, feed), strict=True):
        assert torch.equal(got, want)
        got.fill_(9)


def ops(session: tos.Session) -> list[str]:
    short = kept(session).short
    assert short is not None
    return [step.kernel.op for step in short.program.steps.items]


def views(session: tos.Session) -> tuple[View, ...]:
    short = kept(session).short
    assert short is not None
    return short.views


def test_m15_views_of_weights_are_kept_and_those_of_feeds_are_made() -> None:
    session, eager = grown(VIEWS)
    # The Transpose that is left is that of the feed.
    assert ops(session) == ["MatMul", "Transpose"]
    names = session._engine.program(("y", "t", "v"))[0].steps.names
    assert [names[value] for view in views(session) for value in view.outputs] == ["a", "b", "c", "v"]
    assert session.stats()[counters.VIEWS] == 4 * 2
    check(session, eager, 20)
    assert session.stats()[counters.VIEWS] == 4 * 3


def test_m15_views_whose_place_data_decides_are_made() -> None:
    session, _ = grown(BY_DATA)
    assert "Slice" in ops(session) and not views(session)
    assert session.stats()[counters.VIEWS] == 0


def test_m15_kept_views_lie_in_the_weights_memory_and_results_do_not() -> None:
    session, _ = grown(VIEWS)
    short = kept(session).short
    assert short is not None
    weight = session.graph.initializers["w"].data
    assert isinstance(weight, torch.Tensor)
    for view in views(session):
        assert {made.untyped_storage().data_ptr() for made in view.outputs.values()} == {
            weight.untyped_storage().data_ptr()
        }
    (result,) = session.run(["v"], {"x": torch.zeros(3, 3)})
    assert result.untyped_storage().data_ptr() != weight.untyped_storage().data_ptr()
    assert weight.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_m15_verify_makes_views_again() -> None:
    session, eager = grown(VIEWS, verify=True)
    assert session.stats()[counters.MISMATCHES] == 0 and session.stats()[counters.PROBES] == 2
    found = kept(session)
    assert found.short is not None
    first, *rest = views(session)
    ((value, made),) = first.outputs.items()
    wrong = first._replace(outputs={value: made.contiguous()})
    found.short = dataclasses.replace(found.short, views=(wrong, *rest))
    check(session, eager, 20)
    assert session.stats()[counters.MISMATCHES] == 1 and found.latched
    check(session, eager, 21)
    assert session.stats()[counters.MISMATCHES] == 1


LAYOUTS = {
    "shape": lambda made: made[:1],
    "stride": lambda made: made.as_strided((3, 2), (2, 1)),
    "offset": lambda made: torch.zeros(7).as_strided(made.shape, made.stride(), 1),
    "memory": lambda made: made.clone(memory_format=torch.preserve_format),
    "dtype": lambda made: made.view(torch.int32),
}


@pytest.mark.parametrize("what", LAYOUTS)
def test_m15_a_view_that_would_be_made_otherwise_is_told(what: str) -> None:
    session, _ = grown(VIEWS)
    program = session._engine.program(("y", "t", "v"))[0]
    assert view_difference(program, views(session)) == ""
    first = views(session)[0]
    ((value, made),) = first.outputs.items()
    wrong = first._replace(outputs={value: LAYOUTS[what](made)})
    told = view_difference(program, (wrong,))
    assert told.startswith(f"'a' has {what} ")


def test_m15_explain_tells_of_them() -> None:
    session, _ = grown(VIEWS)
    assert_expected_inline(
        session.explain().split("\n\n")[-1],
        """\
growing (x: float32[grows, 3]) -> (y, t, v)
  6 of 8 steps are known beforehand, 4 of them views of what stays the same
  the others run one by one: none of them can be recorded apart from what grows""",
    )
