"""M15: a step that makes a view of what stays where it is is not run again: candidate, validated, used."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from textmodel import model

import torch_ort_session as tos
from torch_ort_session import Binding, Options
from torch_ort_session.runtime.captures.warmup import frame_of
from torch_ort_session.runtime.interpreter.program import BoundStep, Program
from torch_ort_session.runtime.interpreter.views import BoundProgram, Views, bound_program
from torch_ort_session.trace import counters

TEXT = (
    "g (float[4, 6] k, float[4, 6] x, int64[1] i) => (float[a, b] y, float[c, d] z, float[e, f] v)"
    " <int64[2] dims = {6, 4}, int64[1] zero = {0}, int64[1] two = {2}>"
    " { t = Transpose(k) r = Reshape(t, dims) s = Slice(k, zero, two, zero) y = Neg(r)"
    " p = Transpose(x) z = Neg(p) d = Slice(k, zero, i, zero) v = Abs(d) u = Neg(s) }"
)
KEPT = ["t", "r", "s"]


class Lab:
    """A program whose input k stays and whose other inputs do not, run by steps."""

    def __init__(self, text: str = TEXT, names: tuple[str, ...] = ("k",), verify: bool = False) -> None:
        self.counted = {
            name: 0 for name in (counters.VIEWS, counters.SKIPPED, counters.MOVED, counters.UNVIEWED)
        }
        self.views = Views(self.counted, verify=verify)
        session = tos.load(model(text))
        self.program: Program = session._engine.program(("y", "z", "v", "u"))[0]
        self.bound: BoundProgram = bound_program(self.program, frozenset(names), self.views)
        self.k = torch.randn(4, 6)

    @property
    def steps(self) -> Any:
        return self.program.steps

    def run(self, *, fail: str = "", x: torch.Tensor | None = None, i: int = 3) -> list[str]:
        """One run; gives the names of what steps made."""
        feed = {"k": self.k, "x": torch.randn(4, 6) if x is None else x, "i": torch.tensor([i])}
        values, made = frame_of(self.bound.program, feed), []
        before = self.counted[counters.SKIPPED]
        for bound in self.bound.program.calls:
            (output,) = bound.step.outputs
            if self.steps.names[output] == fail:
                raise RuntimeError(fail)
            skipped = self.counted[counters.SKIPPED]
            bound.call(values)
            if self.counted[counters.SKIPPED] == skipped:
                made.append(self.steps.names[output])
            for value in bound.release:
                values[value] = None
        self.views.done()
        assert self.counted[counters.SKIPPED] - before == len(self.bound.program.calls) - len(made)
        self.results = [values[output] for output in self.steps.outputs]
        self.check(feed)
        return made

    def check(self, feed: dict[str, torch.Tensor]) -> None:
        values = frame_of(self.program, feed)
        for bound in self.program.calls:
            bound.call(values)
        for got, output in zip(self.results, self.steps.outputs, strict=True):
            assert torch.equal(got, values[output]) and got.stride() == values[output].stride()

    def left_out(self, **kwargs: Any) -> list[str]:
        made = self.run(**kwargs)
        names = [self.steps.names[bound.step.outputs[0]] for bound in self.bound.program.calls]
        return [name for name in names if name not in made]

    def node(self, name: str) -> Any:
        return next(node for node in self.views.nodes if self.steps.names[node.output] == name)


def test_m15_a_view_is_a_candidate_then_validated_then_used() -> None:
    lab = Lab()
    assert lab.left_out() == []
    assert lab.left_out() == []
    assert lab.left_out() == KEPT
    assert lab.left_out() == KEPT
    assert lab.counted[counters.VIEWS] == lab.counted[counters.SKIPPED] == 6
    assert lab.counted[counters.MOVED] == lab.counted[counters.UNVIEWED] == 0


def test_m15_views_of_feeds_and_those_that_data_places_are_left_out() -> None:
    lab = Lab()
    names = [lab.steps.names[node.output] for node in lab.views.nodes]
    # p is a view of a feed, d one of k whose place a feed decides.
    assert names == KEPT
    for i in (1, 2, 3, 4):
        lab.run(i=i)


def test_m15_kept_views_show_what_is_in_their_source_now() -> None:
    lab = Lab()
    for number in range(5):
        lab.k.fill_(number)
        lab.run()
        assert lab.results[0].eq(-number).all()


def test_m15_a_skipped_steps_value_is_in_the_frame() -> None:
    lab = Lab()
    for _ in range(2):
        lab.run()
    feed = {"k": lab.k, "x": torch.randn(4, 6), "i": torch.tensor([1])}
    full, left = frame_of(lab.program, feed), frame_of(lab.bound.program, feed)
    for whole, bound in zip(lab.program.calls, lab.bound.program.calls, strict=True):
        whole.call(full)
        bound.call(left)
    lab.views.done()
    for name in KEPT:
        place = lab.steps.names.index(name)
        one, other = full[place], left[place]
        assert (one.shape, one.stride(), one.storage_offset()) == (
            other.shape,
            other.stride(),
            other.storage_offset(),
        )
        assert one.data_ptr() == other.data_ptr() and one.dtype == other.dtype


MOVES = {
    "address": lambda k: k.clone(),
    "bytes behind it": lambda k: torch.cat([k, k])[:4],
    "strides": lambda k: k.t().contiguous().t(),
}


@pytest.mark.parametrize("name", MOVES)
def test_m15_a_source_that_moved_drops_the_plan(name: str) -> None:
    lab = Lab()
    for _ in range(3):
        lab.run()
    old = lab.k
    lab.k = MOVES[name](old)
    assert lab.left_out() == []
    assert lab.counted[counters.MOVED] == 1
    assert lab.left_out() == []
    assert lab.left_out() == KEPT
    assert lab.counted[counters.UNVIEWED] == 0


def test_m15_two_mismatches_on_end_latch_the_plan_off() -> None:
    lab = Lab()
    for _ in range(3):
        lab.run()
    for _ in range(2):
        lab.k = lab.k.clone()
        assert lab.left_out() == []
    assert lab.counted[counters.MOVED] == 2 and lab.counted[counters.UNVIEWED] == 1
    assert lab.views.latched and all(node.kept is None for node in lab.views.nodes)
    for _ in range(4):
        assert lab.left_out() == []
    assert lab.counted[counters.MOVED] == 2


def test_m15_a_match_between_two_mismatches_resets_the_streak() -> None:
    lab = Lab()
    for _ in range(5):
        for _ in range(3):
            lab.run()
        lab.k = lab.k.clone()
        lab.run()
    assert lab.counted[counters.MOVED] == 5 and not lab.views.latched


def test_m15_a_source_that_moves_at_every_run_is_given_up() -> None:
    lab = Lab()
    for _ in range(6):
        lab.k = lab.k.clone()
        assert lab.left_out() == []
    assert lab.views.latched and lab.counted[counters.MOVED] == 2


def test_m15_nodes_that_differ_are_dropped_one_by_one() -> None:
    lab = Lab()
    node = lab.node("s")
    inner, rows = node.call, iter([2, 1, 2, 1, 2, 1])

    def varying(values: list[Any]) -> None:
        inner(values)
        values[node.output] = values[node.output][: next(rows)]

    node.call = varying
    lab.check = lambda feed: None  # type: ignore[method-assign]
    lab.run()
    lab.run()
    assert lab.left_out() == ["t", "r"]
    assert node.off and not lab.views.latched and lab.counted[counters.MOVED] == 0


def test_m15_a_step_that_copies_after_all_is_run_each_time() -> None:
    lab = Lab()
    # A Reshape of what is not contiguous is a copy.
    lab.k = torch.randn(6, 4).t()
    text = TEXT.replace("t = Transpose(k)", "t = Identity(k)")
    lab = Lab(text)
    lab.k = torch.randn(6, 4).t()
    lab.run()
    lab.run()
    assert "r" not in lab.left_out()
    assert lab.node("r").off


def test_m15_an_error_in_a_run_drops_candidate_and_plan() -> None:
    lab = Lab()
    lab.run()
    with pytest.raises(RuntimeError, match="z"):
        lab.run(fail="z")
    # What the broken run made and validated does not count.
    assert lab.left_out() == []
    assert lab.left_out() == []
    assert lab.left_out() == KEPT
    with pytest.raises(RuntimeError, match="z"):
        lab.run(fail="z")
    assert lab.left_out() == []
    assert lab.left_out() == []
    assert lab.left_out() == KEPT
    assert lab.counted[counters.MOVED] == 0


def test_m15_verify_makes_views_again_and_compares_them() -> None:
    lab = Lab(verify=True)
    for _ in range(4):
        assert lab.left_out() == []
    assert lab.counted[counters.VIEWS] == 6 and lab.counted[counters.SKIPPED] == 0
    node = lab.node("s")
    assert node.kept is not None and node.kept.sure
    for wrong in (lab.k[:1], lab.k.t()[:2], lab.k[1:3]):
        lab = Lab(verify=True)
        for _ in range(2):
            lab.run()
        node = lab.node("s")
        assert node.kept is not None
        node.kept = node.kept._replace(view=wrong)
        lab.run()
        assert lab.counted[counters.MOVED] == 1 and node.off


BOUND = (
    "g (float[4, 6] k, float[n, 4] x) => (float[a, b] y) <int64[2] dims = {6, 4}, int64[1] axes = {1}>"
    " { t = Transpose(k) c = Reshape(k, dims) e = Transpose(c) m = MatMul(x, k) w = MatMul(m, t)"
    " u = MatMul(w, e) l = NonZero(u) f = Cast <to = 1> (l) y = Identity(f) }"
)


def latched(**options: Any) -> tuple[tos.Session, Binding, torch.Tensor]:
    """A binding that stays eager, and what is bound to it."""
    session = tos.load(model(BOUND), options=Options(capture_only=({"n": 77},), **options))
    binding = session.bind()
    k = torch.randn(4, 6)
    binding.input("k", k)
    return session, binding, k


def agree(binding: Binding, k: torch.Tensor, n: int = 3) -> None:
    x = torch.randn(n, 4)
    binding.run({"x": x})
    eager = tos.load(model(BOUND), options=Options(capture="off"))
    assert torch.equal(binding.read("y"), eager.run(None, {"x": x, "k": k})[0])


def test_m15_eager_runs_of_a_binding_make_views_of_what_is_bound_once() -> None:
    session, binding, k = latched()
    for _ in range(5):
        agree(binding, k)
    stats = session.stats()
    assert stats[counters.EAGER] == 5
    assert stats[counters.VIEWS] == stats[counters.SKIPPED] == 3 * 3
    k.copy_(torch.randn(4, 6))
    agree(binding, k)
    assert session.stats()[counters.SKIPPED] == 4 * 3


def test_m15_a_tensor_bound_in_its_place_drops_the_views() -> None:
    session, binding, k = latched()
    for _ in range(4):
        agree(binding, k)
    other = torch.randn(4, 6)
    binding.input("k", other)
    for _ in range(3):
        agree(binding, other)
    stats = session.stats()
    assert stats[counters.MOVED] == 1 and stats[counters.UNVIEWED] == 0
    assert stats[counters.SKIPPED] == 2 * 3 + 3
    for _ in range(3):
        other = torch.randn(4, 6)
        binding.input("k", other)
        agree(binding, other)
    assert session.stats()[counters.UNVIEWED] == 1


def test_m15_an_unbound_tensor_is_held_no_longer() -> None:
    session, binding, k = latched()
    for _ in range(4):
        agree(binding, k)
    storage = k.untyped_storage()
    holders = torch._C._storage_Use_Count(storage._cdata)
    binding.unbind("k")
    assert torch._C._storage_Use_Count(storage._cdata) < holders
    assert session._engine.state.growth is not binding._state.growth
    assert binding._state.growth._bound is None


def test_m15_a_binding_in_verify_mode_compares_views() -> None:
    session, binding, k = latched(verify=True)
    for _ in range(5):
        agree(binding, k)
    stats = session.stats()
    assert stats[counters.VIEWS] == 3 * 3 and stats[counters.SKIPPED] == stats[counters.MOVED] == 0


def test_m15_a_failing_run_of_a_binding_drops_the_views() -> None:
    _, binding, k = latched()
    for _ in range(4):
        agree(binding, k)
    kept = binding._state.growth._bound
    assert kept is not None and all(node.kept is not None for node in kept.views.nodes)
    last = kept.program.calls[-1]

    def broken(_: object) -> None:
        raise RuntimeError("broken")

    calls = (*kept.program.calls[:-1], BoundStep(broken, last.release, last.step))
    object.__setattr__(kept.program, "calls", calls)
    with pytest.raises(tos.KernelError, match="broken"):
        binding.run({"x": torch.randn(3, 4)})
    assert all(node.kept is None for node in kept.views.nodes)


SEAMS = (
    "g (float[4, 6] k, float[4, 6] x) => (float[a, b] y, float[c, d] z, int64[e, f] w, float[6, 4] t)"
    " { n = NonZero(x) t = Transpose(k) m = NonZero(t) v = Transpose(n) w = NonZero(v)"
    " f = Cast <to = 1> (n) y = Add(f, f) z = Neg(k) }"
)


@pytest.mark.parametrize("verify", [False, True])
def test_m15_a_replays_seams_make_views_of_static_inputs_and_landings_once(verify: bool) -> None:
    session = tos.load(model(SEAMS), options=Options(verify=verify))
    eager = tos.load(model(SEAMS), options=Options(capture="off"))
    for _ in range(8):
        feed = {"k": torch.randn(4, 6), "x": torch.randn(4, 6)}
        for got, want in zip(session.run(None, feed), eager.run(None, feed), strict=True):
            assert torch.equal(got, want)
            got.fill_(9)
    stats = session.stats()
    assert stats["replays"] == 5
    assert stats[counters.VIEWS] == 2 * (stats["replays"] - 2)
    assert stats[counters.SKIPPED] == (0 if verify else stats[counters.VIEWS])
    assert stats[counters.MOVED] == 0


def test_m15_a_capture_that_is_dropped_holds_no_views() -> None:
    session = tos.load(model(SEAMS))
    for _ in range(6):
        session.run(None, {"k": torch.randn(4, 6), "x": torch.randn(4, 6)})
    (entry,) = session._engine.state.dispatcher.entries.values()
    assert entry.captured is not None
    nodes = [node for stage in entry.captured.regions if stage.views for node in stage.views.nodes]
    assert len(nodes) == 2 and all(node.kept is not None for node in nodes)
    session.release_memory()
    assert all(node.kept is None for node in nodes)
