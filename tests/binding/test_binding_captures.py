"""M2, M6, M8, M9, M18: captures by hand, what declines and retires them, and what is left behind then."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable

import pytest
import torch
from binding.decoders import cell
from expecttest import assert_expected_inline
from runtime.capturelab import STEPS, Failing, injected, refusal
from textmodel import load, message, model, wrapped

import torch_ort_session as tos
from torch_ort_session.plan.partition.report import DeclineReport, Reason

STEP = (
    "g (float[n] x, float[n] h) => (float[n] y, float[n] g)"
    " { a = Exp(h) b = Mul(a, x) c = Neg(b) d = Add(c, h) g = Tanh(d) y = Sub(g, x) }"
)


def bound(
    session: tos.Session, length: int = 3
) -> tuple[tos.Binding, torch.Tensor, torch.Tensor, torch.Tensor]:
    binding = session.bind()
    x, h, y = torch.linspace(0, 1, length), torch.zeros(length), torch.full((length,), -7.0)
    binding.input("x", x)
    binding.state("h", "g", h)
    binding.output("y", y)
    return binding, x, h, y


def expected(x: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y, g = tos.load(model(STEP), options=tos.Options(capture="off")).run(None, {"x": x, "h": h})
    return y, g


def test_m2_a_capture_makes_the_run_and_its_state_advances_once() -> None:
    session = load(STEP)
    binding, x, h, y = bound(session)
    for step in range(5):
        want = expected(x, h.clone())
        if step == 0:
            assert binding.capture() is None
        else:
            assert binding.replay() is True
        assert torch.equal(y, want[0]) and torch.equal(h, want[1])
    assert session.stats()["captures"] == 1


def test_m2_a_capture_where_there_is_one_replays_it() -> None:
    session = load(STEP)
    binding, x, h, _ = bound(session)
    for _ in range(3):
        want = expected(x, h.clone())
        assert binding.capture() is None
        assert torch.equal(h, want[1])
    assert session.stats()["captures"] == 1 and session.stats()["replays"] == 2


@pytest.mark.parametrize("at", [*range(1, STEPS + 1), 2 * STEPS])
def test_m8_a_recording_that_breaks_at_a_step_is_made_again_and_state_advances_once(at: int) -> None:
    made: list[Failing] = []

    def recorder() -> Failing:
        made.append(Failing(at if not made else -1, refusal))
        return made[-1]

    binding, x, h, y = bound(injected(load(STEP), recorder))
    for _ in range(4):
        want = expected(x, h.clone())
        assert binding.capture() is None
        assert torch.equal(y, want[0]) and torch.equal(h, want[1])


@pytest.mark.parametrize("at", range(1, STEPS + 1))
@pytest.mark.parametrize("error", [refusal, MemoryError, lambda: RuntimeError("a device is lost")])
def test_m2_after_a_decline_nothing_has_happened(at: int, error: Callable[[], BaseException]) -> None:
    unfused = tos.load(model(STEP), options=tos.Options(fuse=False))
    session = injected(unfused, lambda: Failing(1 if error is refusal else at, error))
    binding, x, h, y = bound(session)
    h.copy_(torch.randn(3))
    torch.manual_seed(5)
    before, random = h.clone(), torch.get_rng_state()
    report = binding.capture()
    assert isinstance(report, DeclineReport) and report.rows
    assert torch.equal(h, before) and bool((y == -7).all())
    assert torch.equal(torch.get_rng_state(), random)
    want = expected(x, before)
    binding.run()
    assert torch.equal(h, want[1]) and torch.equal(y, want[0])
    text = message(tos.CaptureError, binding.replay)
    assert text == "there is nothing to replay: no capture was made; capture() makes one"


def test_m2_the_report_of_a_decline() -> None:
    session = load("g (float[n] x) => (int64[r, k] y) { y = NonZero(x) }")
    binding = session.bind()
    binding.input("x", torch.tensor([0.0, 1.0, 2.0]))
    report = binding.capture()
    assert isinstance(report, DeclineReport)
    assert_expected_inline(
        wrapped(str(report)),
        """\
node       op                reason                  message
---------  ----------------  ----------------------  ------------------------------------------
(run)                        nothing capturable      no segment is left to record
NonZero_0  ai.onnx::NonZero  kernel declares a seam  the size of the output depends on the data""",
    )
    binding.run()
    assert binding.read("y").tolist() == [[1, 2]]


@pytest.mark.parametrize(("options", "reason"), [({"capture": "off"}, Reason.OFF)])
def test_m2_capture_off_declines(options: dict[str, str], reason: Reason) -> None:
    session = tos.load(model(STEP), options=tos.Options(**options))  # type: ignore[arg-type]
    binding, _, h, y = bound(session)
    report = binding.capture()
    assert isinstance(report, DeclineReport) and [row.reason for row in report.rows] == [reason]
    assert not bool(h.any()) and bool((y == -7).all())
    assert "nothing to replay" in message(tos.CaptureError, binding.replay)


def test_m2_a_capture_that_is_required_raises() -> None:
    session = tos.load(model(STEP), options=tos.Options(capture="required"))
    binding, _, h, _ = bound(injected(session, lambda: "it was told not to"))
    text = message(tos.CaptureError, binding.capture)
    assert "it was told not to" in text
    assert not bool(h.any())


def test_m11_bad_data_is_the_callers_and_nothing_was_written() -> None:
    session = load(
        "g (float[3] x, int64[1] at, float[3] h) => (float[1] y, float[3] g)"
        " { g = Add(h, x) t = Exp(g) y = Gather(t, at) }"
    )
    binding, at, h, y = session.bind(), torch.zeros(1, dtype=torch.int64), torch.zeros(3), torch.zeros(1)
    binding.input("x", torch.ones(3))
    binding.input("at", at)
    binding.state("h", "g", h)
    binding.output("y", y)
    at.fill_(9)
    for act in (binding.run, binding.capture):
        assert "Gather" in message(tos.DeviceIndexError, act)
        assert not bool(h.any()) and not bool(y.any())
    at.fill_(0)
    assert binding.capture() is None
    at.fill_(9)
    before = h.clone()
    for act in (binding.replay, binding.run):
        assert "index 9 is outside" in message(tos.DeviceIndexError, act)
        assert torch.equal(h, before)
    at.fill_(1)
    assert binding.replay() is True
    assert torch.equal(h, before + 1)


def test_m6_a_replay_of_another_signature_says_what_changed_and_retires_the_capture() -> None:
    session = load(
        "g (float[n] x, float[p] c) => (float[n] y, float[t] d) { y = Neg(x) d = Concat <axis=0> (c, x) }"
    )
    binding, cache = session.bind(), torch.zeros(8)
    binding.state("c", "d", cache, 0)
    x = torch.ones(2)
    assert binding.capture({"x": x}) is None
    binding.set_length("c", 0)
    assert binding.replay({"x": x}) is True
    before = cache.clone()
    assert_expected_inline(
        message(tos.CaptureError, lambda: binding.replay({"x": x})),
        """\
the capture is no longer valid and was retired: valid part of state 'c' was [0] and is [2];
capture() makes another""",
    )
    assert_expected_inline(
        message(tos.CaptureError, lambda: binding.replay({"x": x})),
        """\
there is nothing to replay: the last one was retired since its signature was no longer that of
the runs; capture() makes one""",
    )
    assert torch.equal(cache, before) and binding.length("c") == 2
    assert binding.capture({"x": x}) is None
    binding.set_length("c", 2)
    assert_expected_inline(
        message(tos.CaptureError, lambda: binding.replay({"x": torch.ones(3)})),
        """\
the capture is no longer valid and was retired: feed 'x' was float32 [2] cpu and is float32 [3]
cpu; capture() makes another""",
    )
    assert session.stats()["retirements"] == 2


def test_m6_a_key_feed_that_changed_is_named() -> None:
    session = load(
        "g (float[n] x, int64[1] k) => (float[m] y) <int64[1] zero = {0}>"
        " { s = Slice(x, zero, k) y = Neg(s) }"
    )
    binding, x, k = session.bind(), torch.arange(4.0), torch.tensor([2])
    binding.input("x", x)
    binding.input("k", k)
    assert binding.capture() is None
    assert binding.replay() is True
    k.fill_(3)
    assert_expected_inline(
        message(tos.CaptureError, binding.replay),
        """\
the capture is no longer valid and was retired: key feed 'k' was 2 and is 3; capture() makes
another""",
    )
    binding.run()
    assert torch.equal(binding.read("y"), -x[:3])


@pytest.mark.parametrize("part", ["input", "output", "state"])
def test_m18_another_tensor_retires_the_captures_first(part: str) -> None:
    session = load(STEP)
    binding, x, h, y = bound(session)
    assert binding.capture() is None
    old = {"input": x, "output": y, "state": h}[part]
    kept, new = old.clone(), old.clone()
    if part == "input":
        binding.input("x", new)
    elif part == "output":
        binding.output("y", new)
    else:
        binding.state("h", "g", new)
    text = message(tos.CaptureError, binding.replay)
    assert text.startswith("there is nothing to replay: '") and "was bound anew" in text
    for act in (binding.capture, binding.replay, binding.run):
        act()
    assert torch.equal(old, kept)
    if part != "input":
        assert not torch.equal(new, kept)


def test_m18_what_is_unbound_is_let_go_and_a_binding_keeps_what_it_has() -> None:
    session = load(STEP)
    binding, x, h, y = bound(session)
    for _ in range(4):
        binding.run()
    # A tensor's memory lives with it, and the binding holds the tensor.
    refs = [weakref.ref(t) for t in (x, h, y)]
    del x, h, y
    gc.collect()
    assert all(ref() is not None for ref in refs)
    binding.run()
    binding.unbind("x")
    gc.collect()
    assert [ref() is None for ref in refs] == [True, False, False]
    with pytest.raises(tos.CaptureError, match="'x' was unbound"):
        binding.replay({"x": torch.ones(3)})
    del binding
    gc.collect()
    assert all(ref() is None for ref in refs)


@pytest.mark.parametrize("how", ["data", "resize", "set"])
def test_m6_memory_that_moved_under_a_binding_is_never_read_stale(how: str) -> None:
    session = load("g (float[n] x) => (float[m] y) { y = Neg(x) }")
    binding, x = session.bind(), torch.ones(3)
    binding.input("x", x)
    assert binding.capture() is None
    old = x.detach()
    if how == "data":
        x.data = torch.full((3,), 5.0)
    elif how == "resize":
        x.resize_(6).fill_(5)
    else:
        x.set_(torch.full((3,), 5.0))
    assert_expected_inline(
        message(tos.CaptureError, binding.replay),
        """\
there is nothing to replay: the memory or the form of what is bound to 'x' changed; capture()
makes one""",
    )
    for act in (binding.run, binding.capture, binding.replay):
        act()
        assert torch.equal(binding.read("y"), -x)
    old.fill_(9)
    assert binding.replay() is True
    assert torch.equal(binding.read("y"), -x)


def test_m6_memory_that_moved_and_no_longer_fits_is_refused() -> None:
    session = load("g (float[3] x) => (float[3] y) { y = Neg(x) }")
    binding, x = session.bind(), torch.ones(3)
    binding.input("x", x)
    binding.run()
    x.data = torch.ones(4)
    assert_expected_inline(
        message(tos.InputError, binding.run),
        """input 'x': got shape [4], expected float32[3]; dim 0 is 4 and must be 3""",
    )


def test_m2_reset_drops_the_captures_of_one_binding_alone() -> None:
    session = load(STEP)
    first, second = bound(session), bound(session)
    for binding, *_ in (first, second):
        assert binding.capture() is None
    first[0].reset()
    assert_expected_inline(
        message(tos.CaptureError, first[0].replay),
        """there is nothing to replay: reset() dropped the last one; capture() makes one""",
    )
    want = expected(second[1], second[2].clone())
    assert second[0].replay() is True
    assert torch.equal(second[2], want[1])
    want = expected(first[1], first[2].clone())
    assert first[0].capture() is None
    assert torch.equal(first[2], want[1])


def test_release_memory_drops_the_captures_of_bindings() -> None:
    session = load(STEP)
    binding, x, h, _ = bound(session)
    assert binding.capture() is None
    session.release_memory()
    assert session.stats()["arena bytes"] == 0
    assert_expected_inline(
        message(tos.CaptureError, binding.replay),
        """\
there is nothing to replay: the last one diverged, or was dropped to free memory; capture()
makes one""",
    )
    want = expected(x, h.clone())
    binding.run()
    assert torch.equal(h, want[1])


def test_m16_runs_of_other_shapes_and_another_binding_between_replays() -> None:
    session, plain = load(STEP), tos.load(model(STEP), options=tos.Options(capture="off"))
    one, two = bound(session, 3), bound(session, 17)
    for step in range(8):
        for binding, x, h, y in (one, two):
            want = expected(x, h.clone())
            assert (binding.capture() is None) if step == 0 else binding.replay()
            assert torch.equal(y, want[0]) and torch.equal(h, want[1])
            other = {"x": torch.randn(5 + step % 3), "h": torch.randn(5 + step % 3)}
            for got, theirs in zip(session.run(None, other), plain.run(None, other), strict=True):
                assert torch.equal(got, theirs)


def test_m9_a_branch_that_flips_gives_the_right_result_and_says_so() -> None:
    session = load(
        "g (float[n] x, bool[1] f, float[n] h) => (float[m] y, float[n] g) {"
        " g = Add(h, x)"
        " z = If (f) <then_branch = t () => (float[n] a) { a = Exp(x) },"
        " else_branch = e () => (float[k] b) { b = Concat <axis = 0> (x, x) }>"
        " y = Neg(z) }"
    )
    binding, x, f, h = session.bind(), torch.ones(2), torch.tensor([True]), torch.zeros(2)
    binding.input("x", x)
    binding.state("h", "g", h)
    # As data, not as a key feed: it had too many values.
    session._engine.state.dispatcher.learnt.demoted.add("f")
    binding.input("f", f)
    assert binding.capture() is None
    f.fill_(False)
    assert binding.replay() is False
    assert torch.equal(binding.read("y"), -torch.ones(4)) and torch.equal(h, 2 * torch.ones(2))
    assert "diverged" in message(tos.CaptureError, binding.replay)


def test_m12_random_steps_draw_anew_and_a_capture_draws_once() -> None:
    session = load("g (float[4] x) => (float[4] y) { r = RandomNormalLike(x) a = Exp(x) y = Add(a, r) }")
    plain = load("g (float[4] x) => (float[4] y) { r = RandomNormalLike(x) a = Exp(x) y = Add(a, r) }")
    binding, x = session.bind(), torch.zeros(4)
    binding.input("x", x)
    binding.output("y", torch.zeros(4))
    torch.manual_seed(3)
    wants = [plain.run(None, {"x": x})[0] for _ in range(4)]
    torch.manual_seed(3)
    assert binding.capture() is None
    assert torch.equal(binding.read("y"), wants[0])
    for want in wants[1:]:
        binding.replay()
        assert torch.equal(binding.read("y"), want)


def test_threads_on_one_session_serialise() -> None:
    session = load(STEP)
    bindings = [bound(session, 3 + i) for i in range(4)]
    wants = []
    for _, x, h, _ in bindings:
        state = h.clone()
        for _ in range(25):
            state = stepped(x, state)
        wants.append(state)
    failures: list[BaseException] = []

    def work(binding: tos.Binding) -> None:
        try:
            for step in range(25):
                if step % 5 == 3:
                    assert binding.capture() is None
                else:
                    binding.run()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(binding,)) for binding, *_ in bindings]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for (_, _, h, _), want in zip(bindings, wants, strict=True):
        assert torch.equal(h, want)


def stepped(x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    return torch.tanh(-(torch.exp(h) * x) + h)


def test_two_threads_on_one_binding_serialise() -> None:
    session = tos.load(cell())
    binding, h = session.bind(), torch.zeros(1, 4)
    binding.input("x", torch.full((1, 4), 0.25))
    binding.state("h", "h_next", h)
    threads = [threading.Thread(target=lambda: [binding.run() for _ in range(20)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    state, plain = torch.zeros(1, 4), tos.load(cell(), options=tos.Options(capture="off"))
    for _ in range(60):
        _, state = plain.run(None, {"x": torch.full((1, 4), 0.25), "h": state})
    assert torch.equal(h, state)


def test_the_probe_of_verify_compares_the_first_replay() -> None:
    session = tos.load(model(STEP), options=tos.Options(verify=True))
    binding, x, h, y = bound(session)
    for _ in range(5):
        want = expected(x, h.clone())
        assert binding.capture() is None
        assert torch.equal(y, want[0]) and torch.equal(h, want[1])
    assert session.stats()["probes"] == 1 and session.stats()["probe mismatches"] == 0
