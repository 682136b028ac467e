"""Bad data in runs of a session: who is told, what outranks what, and that the next run is right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from expecttest import assert_expected_inline
from runtime.capturelab import counted, session_on, states, warmed
from textmodel import message

import torch_ort_session as tos
from torch_ort_session.ops.native import checks as native_checks
from torch_ort_session.runtime.validation.validator import ValidationWord

PICK = "g (float[n] x, int64[k] i) => (float[k] y) { [pick] y = Gather(x, i) }"
SEAM = (
    "g (float[n] x, int64[k] i) => (float[k] y, int64[1, z] v)"
    " { [pick] p = Gather(x, i) v = NonZero(x) t = Exp(p) y = Neg(t) }"
)
X = torch.arange(5.0)
GOOD = torch.tensor([0, -1, 3])
BAD = torch.tensor([2, 7, -9])


def feed(index: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"x": X, "i": index}


def word_of(session: tos.Session) -> ValidationWord:
    word = session._engine.validation
    assert isinstance(word, ValidationWord)
    return word


def told(call: Callable[[], object]) -> tos.DeviceIndexError:
    with pytest.raises(tos.DeviceIndexError) as caught:
        call()
    assert (caught.value.node, caught.value.value) == ("pick", 7)
    return caught.value


@contextmanager
def unreadable(word: ValidationWord) -> Iterator[None]:
    """The device fails whenever somebody waits for it."""
    fetch = word.fetch

    def broken() -> list[int]:
        raise OSError("the device is lost")

    word.fetch = broken
    try:
        yield
    finally:
        word.fetch = fetch


@pytest.mark.parametrize("text", [PICK, SEAM], ids=["one recording", "a seam"])
def test_m11_every_way_of_running_tells_and_the_capture_stays(text: str) -> None:
    session = session_on(text)
    want = session.run(None, feed(GOOD))
    ways = []
    for _ in range(6):
        told(lambda: session.run(None, feed(BAD)))
        before = counted(session, "captures", "replays")
        for ours, theirs in zip(session.run(None, feed(GOOD)), want, strict=True):
            assert torch.equal(ours, theirs)
        ways.append(
            tuple(a - b for a, b in zip(counted(session, "captures", "replays"), before, strict=True))
        )
    assert ways[-1] == (0, 1) and sum(captures for captures, _ in ways) <= 1
    assert states(session) == ["captured"]
    assert counted(session, "captures", "retirements", "declines") == (1, 0, 0)


@pytest.mark.parametrize("shape", [(), (3,)])
def test_m11_arithmetic_on_shapes_is_checked_too(shape: tuple[int, ...]) -> None:
    dims = ", ".join(map(str, shape))
    session = session_on(
        f"g (int64[n] x, int64[{dims}] i) => (int64[{dims}] y) {{ [pick] p = Gather(x, i) y = Neg(p) }}"
    )
    x, good, bad = torch.arange(5), torch.full(shape, -2), torch.full(shape, 7)
    for _ in range(5):
        told(lambda: session.run(None, {"x": x, "i": bad}))
        assert torch.equal(session.run(None, {"x": x, "i": good})[0], torch.full(shape, -3))
        with pytest.raises(tos.DeviceIndexError, match="index -9 is"):
            session.run(None, {"x": x, "i": good - 7})
    assert counted(session, "captures", "retirements") == (1, 0)


def test_m11_the_run_that_captures_tells_and_its_capture_is_good() -> None:
    session = session_on(PICK)
    warmed(session, feed(GOOD), runs=2)
    assert states(session) == ["warm"]
    told(lambda: session.run(None, feed(BAD)))
    assert states(session) == ["captured"]
    assert session.run(None, feed(GOOD))[0].tolist() == [0, 4, 3]
    assert counted(session, "captures", "replays") == (1, 1)


def test_m7_an_observed_run_with_bad_data_is_not_relied_on() -> None:
    session = session_on(PICK)
    session.run(None, feed(GOOD))
    told(lambda: session.run(None, feed(BAD)))
    assert states(session) == ["cold"]
    warmed(session, feed(GOOD), runs=2)
    assert states(session) == ["captured"]


def test_m7_a_divergence_that_bad_data_brought_costs_no_capture() -> None:
    session = session_on(
        "g (float[n] x, int64[k] i) => (float[m] y, float[k] w)"
        " { [pick] p = Gather(x, i) z = NonZero(p) s = Squeeze(z) q = Gather(p, s) e = Exp(q) f = Neg(e)"
        " y = Abs(f) a = Exp(p) b = Neg(a) w = Abs(b) }"
    )
    # The index 0 picks a zero, and so does what takes the place of a bad one.
    good, bad = torch.tensor([1, 2, 3]), torch.tensor([1, 2, -9])
    warmed(session, feed(good), runs=4)
    assert states(session) == ["captured"]
    for _ in range(6):
        with pytest.raises(tos.DeviceIndexError):
            session.run(None, feed(bad))
    assert counted(session, "captures", "retirements") == (1, 0)
    session.run(None, feed(good))
    assert states(session) == ["captured"]


def test_m11_a_constant_that_is_bad_is_told_in_every_run() -> None:
    session = session_on(
        "g (float[n] x) => (float[n] y) <int64[1] i = {7}, float[3] c = {1, 2, 3}>"
        " { [pick] p = Gather(c, i) y = Add(x, p) }"
    )
    for _ in range(6):
        told(lambda: session.run(None, {"x": X}))


@pytest.mark.parametrize("validate", ["run", "deferred"])
def test_m11_a_capture_by_hand_holds_no_constant_that_bad_data_made(validate: str) -> None:
    session = session_on(
        "g (float[n] x, int64[1] k) => (float[n] y, float[m] z) <float[3] c = {1, 2, 3}>"
        " { [pick] p = Gather(c, k) y = Add(x, p) s = Identity(k) [seam] z = Expand(x, s) }",
        validate=validate,
    )
    binding, k = session.bind(), torch.tensor([7])
    y, z = torch.zeros(1), torch.zeros(7)
    for name, tensor in {"x": torch.tensor([1.0]), "k": k}.items():
        binding.input(name, tensor)
    binding.output("y", y)
    binding.output("z", z)
    told(binding.capture)
    for _ in range(2):
        with pytest.raises(tos.CaptureError, match="nothing to replay"):
            binding.replay()
    told(binding.capture)
    assert not y.any() and not z.any()


@pytest.mark.parametrize("folded", [True, False])
def test_m11_a_branch_that_reads_nothing_is_told_in_every_run(folded: bool) -> None:
    session = session_on(
        "g (float[n] x, bool f) => (float[m] y) { "
        + ("c = Identity(f)" if folded else "t = ReduceSum <keepdims = 0> (x) z = Sub(t, t) c = Equal(t, z)")
        + " y = If (c) <then_branch = t () => (float[1] a)"
        " <int64[1] i = {7}, float[3] w = {1, 2, 3}> { [pick] a = Gather(w, i) },"
        " else_branch = e () => (float[n] b) { b = Neg(x) }> }"
    )
    for _ in range(6):
        with pytest.raises(tos.DeviceIndexError, match=r"pick.*index 7"):
            session.run(None, {"x": torch.zeros(5), "f": torch.tensor(True)})
        assert session.run(None, {"x": X, "f": torch.tensor(False)})[0].tolist() == (-X).tolist()


def test_m1_validation_outranks_a_failed_step() -> None:
    session = session_on(
        "g (float[n] x, int64[k] i, int64[r] s) => (float[a] y) { [pick] p = Gather(x, i) y = Reshape(p, s) }"
    )
    shape, wrong = torch.tensor([3]), torch.tensor([4])
    for _ in range(5):
        error = told(lambda: session.run(None, {**feed(BAD), "s": wrong}))
        assert isinstance(error.__cause__, tos.KernelError)
        assert "Reshape" in str(error.__cause__)
        with pytest.raises(tos.KernelError, match="Reshape"):
            session.run(None, {**feed(GOOD), "s": wrong})
        assert session.run(None, {**feed(GOOD), "s": shape})[0].tolist() == [0, 4, 3]


def test_m1_a_failed_step_outranks_what_cannot_be_bound_and_validation_both() -> None:
    session = session_on(
        "g (float[n] x, int64[k] i, int64[r] s) => (float[a] y, float[k] p)"
        " { [pick] p = Gather(x, i) y = Reshape(p, s) }"
    )
    binding, small = session.bind(), torch.zeros(2)
    binding.output("p", small)
    ok, wrong = torch.tensor([3]), torch.tensor([4])
    with pytest.raises(tos.InputError, match="'p'"):
        binding.run({**feed(GOOD), "s": ok})
    with pytest.raises(tos.KernelError, match="Reshape"):
        binding.run({**feed(GOOD), "s": wrong})
    error = told(lambda: binding.run({**feed(BAD), "s": wrong}))
    assert isinstance(error.__cause__, tos.KernelError)
    error = told(lambda: binding.run({**feed(BAD), "s": ok}))
    assert error.__cause__ is None
    assert not small.any()


def test_m1_a_body_neither_begins_nor_ends_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_on(
        "g (float[n] x, int64[k] i, int64 t) => (float[k] y) <bool c = {1}, float[3] z = {0, 0, 0}> {"
        " y = Loop (t, c, z) <body = b (int64 n, bool go, float[k] acc) => (bool on, float[k] new)"
        " { on = Identity(go) [pick] p = Gather(x, i) new = Add(acc, p) }> }"
    )
    word = word_of(session)
    reads, begin, read = [], word.begin, word.read
    monkeypatch.setattr(word, "begin", lambda: reads.append("begin") or begin())
    monkeypatch.setattr(word, "read", lambda ticket: reads.append("read") or read(ticket))
    for _ in range(6):
        told(lambda: session.run(None, {**feed(BAD), "t": torch.tensor(3)}))
        got = session.run(None, {**feed(GOOD), "t": torch.tensor(3)})
        assert got[0].tolist() == [0, 12, 9]
    assert reads == ["begin", "read"] * 12


def test_m11_a_graph_whose_kernels_check_nothing_pays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_on("g (float[n] x) => (float[n] y) { a = Exp(x) b = Neg(a) y = Abs(b) }")
    word = word_of(session)
    monkeypatch.setattr(word, "fetch", lambda: pytest.fail("the device was waited for"))
    warmed(session, {"x": X}, runs=6)
    assert word.generation == 0
    asked = session_on(
        "g (float[n] x, int64[k] i) => (float[k] y, float[n] e) { y = Gather(x, i) e = Exp(x) }"
    )
    asked.run(["e"], feed(GOOD))
    assert word_of(asked).generation == 0
    asked.run(["y"], feed(GOOD))
    assert word_of(asked).generation == 1


def test_m11_the_word_is_read_once_a_run() -> None:
    session = session_on(PICK)
    word, waits = word_of(session), []
    fetch = word.fetch
    word.fetch = lambda: waits.append(1) or fetch()  # type: ignore[func-returns-value]
    for run in range(1, 5):
        session.run(None, feed(GOOD))
        # On the CPU begin looks as well, instead of clearing what is clear.
        assert len(waits) == 2 * run
    session.run(None, feed(GOOD))
    assert len(waits) == 8, "the tape looks itself in a run like the one before"


@pytest.mark.parametrize("runs", [0, 1, 2, 3], ids=["eager", "observed", "captured", "replayed"])
def test_m11_a_word_that_cannot_be_read_blocks_until_it_can(runs: int) -> None:
    session = session_on(PICK)
    for _ in range(runs):
        session.run(None, feed(GOOD))
    word = word_of(session)
    with unreadable(word):
        # Reading fails after the run: begin looks at the word too, on the CPU.
        begin = word.begin
        fetch, word.fetch = word.fetch, lambda: [0] * 8

        def begun() -> Any:
            found = begin()
            word.fetch = fetch
            return found

        word.begin = begun  # type: ignore[method-assign]
        with pytest.raises(OSError, match="lost"):
            session.run(None, feed(BAD))
        word.begin = begin  # type: ignore[method-assign]
        with pytest.raises(tos.DeviceValidationError, match="not asked yet"):
            session.run(None, feed(GOOD))
        with pytest.raises(OSError, match="lost"):
            session.check()
        assert word.ticket is not None
    with pytest.raises(tos.DeviceValidationError, match="not asked yet"):
        session.run(None, feed(GOOD))
    told(session.check)
    session.check()
    assert session.run(None, feed(GOOD))[0].tolist() == [0, 4, 3]


def test_m11_a_failed_step_whose_word_cannot_be_read_says_both() -> None:
    session = session_on(
        "g (float[n] x, int64[k] i, int64[r] s) => (float[a] y) { p = Gather(x, i) y = Reshape(p, s) }"
    )
    word = word_of(session)
    fetch, waits = word.fetch, []

    def later() -> list[int]:
        waits.append(1)
        if len(waits) == 2:
            raise OSError("the device is lost")
        return fetch()

    word.fetch = later
    with pytest.raises(tos.KernelError) as caught:
        session.run(None, {**feed(GOOD), "s": torch.tensor([4])})
    assert caught.value.__notes__ == [
        "whether it met bad data is not known (the device is lost); session.check() asks again"
    ]
    session.check()
    session.run(None, {**feed(GOOD), "s": torch.tensor([3])})


def test_m11_a_request_that_fails_does_not_poison_the_next() -> None:
    session = session_on(PICK)
    for _ in range(5):
        with pytest.raises(tos.InputError):
            session.run(None, {"x": X})
        with pytest.raises(tos.ModelError):
            session.run(["nothing"], feed(GOOD))
        assert session.run(None, feed(GOOD))[0].tolist() == [0, 4, 3]


def test_m11_an_interrupt_passes_through_and_ends_its_ticket(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_on(SEAM)

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    for _ in range(5):
        with monkeypatch.context() as patch:
            patch.setattr(torch, "nonzero", interrupted)
            patch.setattr(torch.Tensor, "nonzero", interrupted)
            with pytest.raises(KeyboardInterrupt):
                session.run(None, feed(BAD))
        session.run(None, feed(GOOD))


def test_m11_an_error_of_a_replay_ends_its_ticket(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_on(PICK)
    warmed(session, feed(GOOD), runs=5)
    shortcut = session._engine.fast
    assert shortcut is not None and shortcut.validation is word_of(session)

    def broken(*_: object) -> None:
        raise RuntimeError("it broke")

    monkeypatch.setattr(shortcut.recording, "replay", broken)
    assert session.run(None, feed(GOOD))[0].tolist() == [0, 4, 3]
    assert counted(session, "retirements") == (1,)
    told(lambda: session.run(None, feed(BAD)))


def test_m11_off_clamps_and_never_asks() -> None:
    session, eager = session_on(PICK, validate="off"), session_on(PICK, validate="off", capture="off")
    for _ in range(6):
        for one in (session, eager):
            assert one.run(None, feed(torch.tensor([2, 7, -9, -1])))[0].tolist() == [2, 4, 0, 4]
            one.check()
    assert states(session) == ["captured"]
    # An axis without entries has no nearest one.
    with pytest.raises(tos.KernelError, match="empty"):
        session.run(None, {"x": X[:0], "i": GOOD})
    assert session.run(None, {"x": X[:0], "i": GOOD[:0]})[0].numel() == 0


def test_m11_modes_are_named() -> None:
    assert tos.Options().validate == "run"
    assert_expected_inline(
        message(ValueError, lambda: tos.Options(validate="late")),  # type: ignore[arg-type]
        """validate must be one of 'run', 'deferred', 'off', got 'late'""",
    )


def test_m11_a_session_that_nobody_waits_for_has_nothing_to_check() -> None:
    for validate in ("run", "deferred", "off"):
        session = session_on(PICK, validate=validate)
        session.check()
        session.run(None, feed(GOOD))
        session.check()


@pytest.mark.parametrize("validate", ["run", "deferred"])
def test_m11_runs_that_give_results_ask_at_their_end(validate: str) -> None:
    session = session_on(PICK, validate=validate)
    for _ in range(5):
        told(lambda: session.run(None, feed(BAD)))
        session.check()


def test_m11_under_grad_it_is_told_and_gradients_flow() -> None:
    session = session_on(PICK)
    x = X.clone().requires_grad_()
    told(lambda: session.run(None, {"x": x, "i": BAD}))
    (y,) = session.run(None, {"x": x, "i": GOOD})
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [1, 0, 0, 1, 1]


def test_m11_under_a_function_transform_torch_itself_refuses() -> None:
    session = session_on(PICK)
    run = torch.func.vmap(lambda x: session.run(None, {"x": x, "i": GOOD})[0])
    assert run(X.repeat(2, 1)).tolist() == [[0, 4, 3], [0, 4, 3]]
    wrong = torch.func.vmap(lambda x: session.run(None, {"x": x, "i": BAD})[0])
    with pytest.raises(tos.KernelError):
        wrong(X.repeat(2, 1))
    session.run(None, feed(GOOD))


def test_m11_plans_are_made_under_a_ticket_too() -> None:
    session = session_on(PICK)
    told(lambda: session.plan(feed(BAD)))
    assert session.plan(feed(GOOD)).regions
    session.run(None, feed(GOOD))


@pytest.mark.parametrize("threads", [None, 1])
def test_m11_the_number_of_threads_does_not_matter(threads: int | None) -> None:
    session = session_on(PICK, num_threads=threads)
    for _ in range(5):
        told(lambda: session.run(None, feed(BAD)))
        session.run(None, feed(GOOD))


def test_m11_without_the_extension_plain_ops_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_checks, "index_check", lambda *_: None)
    session = session_on(PICK)
    for _ in range(6):
        told(lambda: session.run(None, feed(BAD)))
        assert session.run(None, feed(GOOD))[0].tolist() == [0, 4, 3]
    assert states(session) == ["captured"]
